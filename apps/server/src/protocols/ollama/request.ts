/** Converts requests of Ollama's API to chat calls. */
import type { ChatMessage, ChatRequest, ChatTurn, GenerateOptions } from '@winnow/engine';
import { definedFields } from '@winnow/tensor';
import { badRequest } from '../../http/api-error.js';
import type { GenerativeEntry } from '../../models/model-entry.js';
import type { ChatCall } from '../../requests/prepared-chat.js';
import { imageOfBase64, imagesField } from '../../requests/request-images.js';
import { samplingOptionsOf } from '../../requests/sampling.js';
import type { OllamaChatRequest, OllamaGenerateRequest, OllamaMessage, OllamaOptions, Think } from './schemas.js';

type JsonSchema = NonNullable<ChatRequest['jsonSchema']>;
type Tools = NonNullable<ChatRequest['tools']>;
type Shared = Pick<OllamaChatRequest, 'format' | 'options' | 'think' | 'logprobs' | 'top_logprobs'>;

/** @throws {ApiError} 400 for options that the server cannot follow */
export function chatCallOf(body: OllamaChatRequest, entry: Pick<GenerativeEntry, 'model'>): ChatCall {
  const { messages = [], tools = [] } = body;
  const declared = tools.map(({ function: { name, description, parameters } }) => ({
    name,
    ...definedFields<Tools[number]>({ description, parameters: parameters as JsonSchema }),
  }));
  return callOf(body, entry, {
    messages: messagesOf(messages),
    ...(declared.length === 0 ? {} : { tools: declared }),
  });
}

/** A prompt as a conversation. */
export function generateCallOf(body: OllamaGenerateRequest, entry: Pick<GenerativeEntry, 'model'>): ChatCall {
  const { prompt = '', system = '' } = body;
  const images = imagesOf(body.images, 'images');
  const user: ChatMessage = { role: 'user', content: prompt, ...images };
  const messages = system === '' ? [user] : [{ role: 'system', content: system }, user];
  return { ...callOf(body, entry, { messages }), promptParam: 'prompt' };
}

/** @throws {ApiError} 400 for options that the server cannot follow */
export function generateOptionsOf(body: Shared, { model }: Pick<GenerativeEntry, 'model'>): GenerateOptions {
  const { options = {}, logprobs, top_logprobs: numTop } = body;
  if (numTop !== undefined && logprobs !== true) throw badRequest('top_logprobs', 'needs logprobs: true');
  if (options.num_ctx !== undefined && options.num_ctx > model.contextSize) {
    throw badRequest('options.num_ctx', `this model is served with a context of ${model.contextSize} tokens`);
  }
  return {
    ...samplingOptionsOf({ ...options, ...definedFields({ repetition_penalty: options.repeat_penalty }) }),
    ...definedFields<GenerateOptions>({
      penaltyWindow: options.repeat_last_n,
      maxTokens: maxTokensOf(options),
      numTopLogprobs: numTop,
    }),
  };
}

export function schemaOf({ format }: Shared): JsonSchema | undefined {
  if (format === undefined || format === '') return undefined;
  return format === 'json' ? { type: 'object' } : (format as JsonSchema);
}

/** A turn that continues a text as it is. */
export function textTurn(prompt: Int32Array): ChatTurn {
  return {
    prompt,
    options: {},
    toolFormat: undefined,
    createReader: () => ({ push: (text) => (text === '' ? [] : [{ type: 'text', text }]), end: () => [] }),
  };
}

function callOf(body: Shared, entry: Pick<GenerativeEntry, 'model'>, request: ChatRequest): ChatCall {
  return {
    request: {
      ...request,
      ...definedFields<ChatRequest>({ jsonSchema: schemaOf(body), templateVariables: variablesOf(body.think) }),
    },
    options: generateOptionsOf(body, entry),
    wantsLogprobs: body.logprobs === true,
  };
}

function variablesOf(think: Think | undefined): ChatRequest['templateVariables'] {
  if (think === undefined) return undefined;
  return typeof think === 'boolean' ? { enable_thinking: think } : { enable_thinking: true, reasoning_effort: think };
}

function maxTokensOf({ num_predict: maxTokens }: OllamaOptions): number | undefined {
  return maxTokens === undefined || maxTokens < 0 ? undefined : maxTokens;
}

function imagesOf(images: readonly string[] = [], path: string): Pick<ChatMessage, 'images'> {
  return imagesField(images.map((image, index) => imageOfBase64(image, `${path}[${index}]`)));
}

/** Calls have no ids in this API: they are numbered, and a result belongs to the first open call of its tool. */
function messagesOf(messages: readonly OllamaMessage[]): ChatMessage[] {
  let numCalls = 0;
  const open: { readonly id: string; readonly name: string }[] = [];
  return messages.map((message, index) => {
    const { role, content = '', thinking: reasoning, tool_calls: calls = [], tool_name: toolName } = message;
    if (role === 'tool') {
      const named = open.findIndex(({ name }) => name === toolName);
      const [call] = open.splice(Math.max(0, named), 1);
      const name = toolName ?? call?.name;
      return { role, content, ...definedFields<ChatMessage>({ toolCallId: call?.id, name }) };
    }
    const toolCalls = calls.map(({ function: { name, arguments: values = {} } }) => {
      const id = `call${String(++numCalls).padStart(5, '0')}`;
      open.push({ id, name });
      return { id, name, arguments: values };
    });
    const images = imagesOf(message.images, `messages[${index}].images`);
    return {
      role,
      content,
      ...images,
      ...definedFields({ reasoning }),
      ...(toolCalls.length === 0 ? {} : { toolCalls }),
    };
  });
}
