/** Converts a chat request for the engine. */
import { definedFields, isRecord, jsonDepth, maxJsonDepth } from '@winnow/tensor';
import {
  prepareChat,
  type ChatMessage,
  type ChatRequest,
  type ChatTurn,
  type GenerateOptions,
  type PrepareOptions,
} from '@winnow/engine';
import { ApiError, badRequest, missingParameter } from '../http/api-error.js';
import { engineApiError } from '../http/error-mapping.js';
import { checkPrompt } from './generation-job.js';
import type { GenerativeEntry } from '../models/model-registry.js';
import { samplingOptionsOf } from './sampling.js';
import type { ChatCompletionRequest, RequestMessage } from '../schemas/chat.js';

type JsonSchema = NonNullable<ChatRequest['jsonSchema']>;
type ToolCalls = NonNullable<ChatMessage['toolCalls']>;

export interface PreparedChat {
  readonly turn: ChatTurn;
  readonly options: GenerateOptions;
  readonly wantsLogprobs: boolean;
  /** Answers to the prompt. */
  readonly numChoices: number;
}

/** @throws {ApiError} 400 for unsupported features of the model or the server */
export async function prepareChatRequest(
  body: ChatCompletionRequest,
  entry: GenerativeEntry,
  options: PrepareOptions,
): Promise<PreparedChat> {
  if (entry.model.chatTemplate === undefined) {
    const message = `The model '${entry.id}' has no chat template; use /v1/completions`;
    throw new ApiError({ status: 400, message, param: 'model', code: 'unsupported_model' });
  }
  if (body.top_logprobs !== undefined && body.logprobs !== true) {
    throw badRequest('top_logprobs', 'needs logprobs: true', 'invalid_value');
  }
  const turn = await prepareTurn(body, entry, options);
  if (body.grammar !== undefined && Object.keys(turn.options).length > 0) {
    throw badRequest('grammar', 'cannot be combined with tools or response_format', 'invalid_value');
  }
  checkPrompt(turn.prompt, entry, 'messages');
  return {
    turn,
    wantsLogprobs: body.logprobs === true,
    numChoices: body.n ?? 1,
    options: {
      ...samplingOptionsOf(body),
      ...definedFields<GenerateOptions>({
        maxTokens: body.max_completion_tokens ?? body.max_tokens,
        numTopLogprobs: body.top_logprobs,
        grammar: body.grammar,
      }),
      ...turn.options,
    },
  };
}

async function prepareTurn(
  body: ChatCompletionRequest,
  { model }: GenerativeEntry,
  options: PrepareOptions,
): Promise<ChatTurn> {
  const request: ChatRequest = {
    messages: body.messages.map(messageOf),
    ...definedFields<ChatRequest>({
      tools: toolsOf(body),
      toolChoice: toolChoiceOf(body),
      parallelToolCalls: body.parallel_tool_calls,
      jsonSchema: jsonSchemaOf(body),
      templateVariables: body.chat_template_kwargs,
    }),
  };
  try {
    return await prepareChat(model, request, options);
  } catch (error) {
    throw engineApiError(error, 'messages') ?? error;
  }
}

/** Templates have no developer role: its messages become system messages. */
function messageOf(message: RequestMessage, index: number): ChatMessage {
  const { role, name, tool_calls: toolCalls, tool_call_id: toolCallId } = message;
  return {
    role: role === 'developer' ? 'system' : role,
    content: contentOf(message, `messages[${index}]`),
    ...definedFields<ChatMessage>({
      name,
      toolCallId,
      toolCalls: toolCalls?.map((call, callIndex) => ({
        id: call.id,
        name: call.function.name,
        arguments: parsedArguments(
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
    const expected = part.type === 'text' ? 'must have a string' : `'${part.type}' is not supported, only 'text'`;
    throw badRequest(`${path}.content[${index}]`, expected, 'unsupported_value');
  });
  return texts.join('');
}

function parsedArguments(text: string, path: string): ToolCalls[number]['arguments'] {
  try {
    const value: unknown = jsonDepth(text) > maxJsonDepth ? undefined : JSON.parse(text === '' ? '{}' : text);
    if (isRecord(value)) return value;
  } catch {
    // reported below
  }
  throw badRequest(path, `must be a JSON object of at most ${maxJsonDepth} levels as a string`, 'invalid_value');
}

function toolsOf({ tools = [] }: ChatCompletionRequest): ChatRequest['tools'] {
  if (tools.length === 0) return undefined;
  return tools.map(({ function: { name, description, parameters } }) => ({
    name,
    ...definedFields<NonNullable<ChatRequest['tools']>[number]>({ description, parameters: parameters as JsonSchema }),
  }));
}

function toolChoiceOf({ tool_choice: choice, tools = [] }: ChatCompletionRequest): ChatRequest['toolChoice'] {
  if (choice === undefined) return undefined;
  if (choice !== 'none' && tools.length === 0) throw badRequest('tool_choice', 'needs tools', 'invalid_value');
  if (typeof choice === 'string') return choice;
  const { name } = choice.function;
  if (tools.some((tool) => tool.function.name === name)) return { name };
  throw badRequest('tool_choice.function.name', `'${name}' is not among tools`, 'invalid_value');
}

function jsonSchemaOf({ response_format: format }: ChatCompletionRequest): JsonSchema | undefined {
  if (format === undefined || format.type === 'text') return undefined;
  if (format.type === 'json_object') return { type: 'object' };
  const schema = format.json_schema?.schema;
  if (schema !== undefined) return schema as JsonSchema;
  throw missingParameter('response_format.json_schema.schema');
}
