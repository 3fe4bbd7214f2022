/** Converts a chat request of OpenAI's API to a chat call. */
import { definedFields } from '@winnow/tensor';
import type { ChatMessage, ChatRequest, GenerateOptions, PrepareOptions } from '@winnow/engine';
import { badRequest, missingParameter } from '../http/api-error.js';
import { imageOfUrl, imagesField } from './request-images.js';
import { jsonObjectOf, prepareCall, type PreparedChat } from './prepared-chat.js';
import type { GenerativeEntry } from '../models/model-entry.js';
import { samplingOptionsOf } from './sampling.js';
import type { ChatCompletionRequest, RequestMessage } from '../schemas/chat.js';
import type { ApplyTemplateRequest } from '../schemas/tokens.js';

/** What `/v1/chat/completions` and `/apply-template` share. */
type ChatPrompt = Pick<ChatCompletionRequest, keyof ApplyTemplateRequest>;
type JsonSchema = NonNullable<ChatRequest['jsonSchema']>;

/** @throws {ApiError} 400 for unsupported features of the model or the server */
export async function prepareChatRequest(
  body: ChatCompletionRequest,
  entry: GenerativeEntry,
  options: PrepareOptions,
): Promise<PreparedChat> {
  if (body.top_logprobs !== undefined && body.logprobs !== true) {
    throw badRequest('top_logprobs', 'needs logprobs: true', 'invalid_value');
  }
  const call = {
    request: chatRequestOf(body),
    wantsLogprobs: body.logprobs === true,
    numChoices: body.n ?? 1,
    options: {
      ...samplingOptionsOf(body),
      ...definedFields<GenerateOptions>({
        maxTokens: body.max_completion_tokens ?? body.max_tokens,
        numTopLogprobs: body.top_logprobs,
        grammar: body.grammar,
      }),
    },
  };
  return prepareCall(call, entry, options);
}

/** The part of a request that makes its prompt and constrains its answer. */
export function chatRequestOf(body: ChatPrompt): ChatRequest {
  return {
    messages: body.messages.map(messageOf),
    ...definedFields<ChatRequest>({
      tools: toolsOf(body),
      toolChoice: toolChoiceOf(body),
      parallelToolCalls: body.parallel_tool_calls,
      jsonSchema: jsonSchemaOf(body),
      reasoningEffort: body.reasoning_effort ?? undefined,
      maxReasoningTokens: body.max_reasoning_tokens,
      templateVariables: body.chat_template_kwargs,
    }),
  };
}

/** Templates have no developer role: its messages become system messages. */
function messageOf(message: RequestMessage, index: number): ChatMessage {
  const { role, name, tool_calls: toolCalls, tool_call_id: toolCallId } = message;
  return {
    role: role === 'developer' ? 'system' : role,
    content: contentOf(message, `messages[${index}]`),
    ...imagesOf(message, `messages[${index}]`),
    ...definedFields<ChatMessage>({
      name,
      reasoning: message.reasoning_content ?? undefined,
      toolCallId,
      toolCalls: toolCalls?.map((call, callIndex) => ({
        id: call.id,
        name: call.function.name,
        arguments: jsonObjectOf(
          call.function.arguments,
          `messages[${index}].tool_calls[${callIndex}].function.arguments`,
        ),
      })),
    }),
  };
}

function contentOf({ role, content, tool_calls: toolCalls }: RequestMessage, path: string): string {
  if (typeof content === 'string') return content;
  if (content === undefined || content === null) {
    if (role === 'assistant' && (toolCalls?.length ?? 0) > 0) return '';
    throw badRequest(`${path}.content`, 'must be a string', 'missing_required_parameter');
  }
  const texts = content.map((part, index) => {
    if (part.type === 'text' && part.text !== undefined) return part.text;
    if (part.type === 'image_url') return '';
    const known = "only 'text' and 'image_url'";
    const expected = part.type === 'text' ? 'must have a string' : `'${part.type}' is not supported, ${known}`;
    throw badRequest(`${path}.content[${index}]`, expected, 'unsupported_value');
  });
  return texts.join('');
}

/** The images of a message, which stand before its text. */
function imagesOf({ content }: RequestMessage, path: string): Pick<ChatMessage, 'images'> {
  if (!Array.isArray(content)) return {};
  const images = content.flatMap((part, index) =>
    part.type === 'image_url' ? [imageOfUrl(part.image_url?.url ?? '', `${path}.content[${index}].image_url.url`)] : [],
  );
  return imagesField(images);
}

function toolsOf({ tools = [] }: ChatPrompt): ChatRequest['tools'] {
  if (tools.length === 0) return undefined;
  return tools.map(({ function: { name, description, parameters } }) => ({
    name,
    ...definedFields<NonNullable<ChatRequest['tools']>[number]>({ description, parameters: parameters as JsonSchema }),
  }));
}

function toolChoiceOf({ tool_choice: choice, tools = [] }: ChatPrompt): ChatRequest['toolChoice'] {
  if (choice === undefined) return undefined;
  if (choice !== 'none' && tools.length === 0) throw badRequest('tool_choice', 'needs tools', 'invalid_value');
  if (typeof choice === 'string') return choice;
  const { name } = choice.function;
  if (tools.some((tool) => tool.function.name === name)) return { name };
  throw badRequest('tool_choice.function.name', `'${name}' is not among tools`, 'invalid_value');
}

function jsonSchemaOf({ response_format: format }: ChatPrompt): JsonSchema | undefined {
  if (format === undefined || format.type === 'text') return undefined;
  if (format.type === 'json_object') return { type: 'object' };
  const schema = format.json_schema?.schema;
  if (schema !== undefined) return schema as JsonSchema;
  throw missingParameter('response_format.json_schema.schema');
}
