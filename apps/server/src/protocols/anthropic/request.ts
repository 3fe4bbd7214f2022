/** Converts a request of the Messages API to a chat call. */
import type { ChatMessage, ChatRequest, GenerateOptions } from '@winnow/engine';
import { definedFields } from '@winnow/tensor';
import { badRequest, unsupported } from '../../http/api-error.js';
import type { ChatCall } from '../../requests/prepared-chat.js';
import { imageOfBase64, imagesField } from '../../requests/request-images.js';
import { samplingOptionsOf } from '../../requests/sampling.js';
import type { AnthropicMessageParam, CountTokensRequest, MessageRequest, RequestBlock } from './schemas.js';

type JsonSchema = NonNullable<ChatRequest['jsonSchema']>;
type Tools = NonNullable<ChatRequest['tools']>;

/** @throws {ApiError} 400 for content that the server cannot pass to a model */
export function callOf(body: MessageRequest): ChatCall {
  return {
    request: chatRequestOf(body),
    options: {
      ...samplingOptionsOf({ ...body, ...(body.stop_sequences === undefined ? {} : { stop: body.stop_sequences }) }),
      ...definedFields<GenerateOptions>({ maxTokens: body.max_tokens }),
    },
  };
}

/** The part of a request that makes its prompt. */
export function chatRequestOf(body: CountTokensRequest): ChatRequest {
  const { tool_choice: choice, output_config: output } = body;
  return {
    messages: messagesOf(body),
    ...definedFields<ChatRequest>({
      tools: toolsOf(body),
      toolChoice: toolChoiceOf(body),
      parallelToolCalls: choice?.disable_parallel_tool_use === true ? false : undefined,
      jsonSchema: output?.format?.schema as JsonSchema | undefined,
      enableThinking: body.thinking === undefined ? undefined : body.thinking.type !== 'disabled',
      reasoningEffort: output?.effort ?? undefined,
      maxReasoningTokens: body.thinking?.budget_tokens,
    }),
  };
}

function messagesOf({ messages, system }: CountTokensRequest): ChatMessage[] {
  const names = new Map<string, string>(); // of calls, by id
  const converted = messages.flatMap((message, index) => turnsOf(message, `messages[${index}]`, names));
  if (messages.at(-1)?.role === 'assistant') {
    throw badRequest(`messages[${messages.length - 1}].role`, 'the last message must not be an assistant message');
  }
  const text = typeof system === 'string' ? system : system?.map((block) => block.text).join('\n');
  return text === undefined || text === '' ? converted : [{ role: 'system', content: text }, ...converted];
}

/** Results of tools are messages of their own. @param names of calls by id, which calls extend */
function turnsOf({ role, content }: AnthropicMessageParam, path: string, names: Map<string, string>): ChatMessage[] {
  if (typeof content === 'string') return [{ role, content }];
  return role === 'assistant' ? [assistantTurn(content, path, names)] : userTurns(role, content, path, names);
}

function assistantTurn(blocks: readonly RequestBlock[], path: string, names: Map<string, string>): ChatMessage {
  const texts: string[] = [];
  const thoughts: string[] = [];
  const toolCalls: NonNullable<ChatMessage['toolCalls']>[number][] = [];
  for (const [index, block] of blocks.entries()) {
    const at = `${path}.content[${index}]`;
    const { type, id, name, input } = block;
    if (type === 'text') texts.push(textOf(block, at));
    else if (type === 'tool_use') {
      if (id === undefined || name === undefined) throw badRequest(at, 'must have an id and a name', 'invalid_value');
      names.set(id, name);
      toolCalls.push({ id, name, arguments: input ?? {} });
    } else if (type === 'thinking') thoughts.push(block.thinking ?? '');
    else if (type !== 'redacted_thinking') throw unsupportedBlock(type, at);
  }
  return {
    ...{ role: 'assistant', content: texts.join('') },
    ...(thoughts.length === 0 ? {} : { reasoning: thoughts.join('') }),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
  };
}

function userTurns(
  role: string,
  blocks: readonly RequestBlock[],
  path: string,
  names: ReadonlyMap<string, string>,
): ChatMessage[] {
  const turns: ChatMessage[] = [];
  let texts: string[] = [];
  let images: Uint8Array[] = [];
  const endText = (): void => {
    if (texts.length + images.length > 0) turns.push({ role, content: texts.join('\n'), ...imagesField(images) });
    texts = [];
    images = [];
  };
  for (const [index, block] of blocks.entries()) {
    const at = `${path}.content[${index}]`;
    if (block.type === 'text') texts.push(textOf(block, at));
    else if (block.type === 'image') images.push(imageOf(block, at));
    else if (block.type === 'tool_result') {
      endText();
      turns.push(resultTurn(block, at, names));
    } else throw unsupportedBlock(block.type, at);
  }
  endText();
  return turns;
}

function imageOf({ source }: RequestBlock, path: string): Uint8Array {
  if (source?.type !== 'base64') throw badRequest(`${path}.source.type`, "must be 'base64'", 'invalid_value');
  return imageOfBase64(source.data ?? '', `${path}.source.data`);
}

function resultTurn(
  { tool_use_id: toolCallId, content = '', is_error: isError }: RequestBlock,
  path: string,
  names: ReadonlyMap<string, string>,
): ChatMessage {
  if (toolCallId === undefined) throw badRequest(path, 'must have a tool_use_id', 'invalid_value');
  const name = names.get(toolCallId);
  if (name === undefined) {
    throw badRequest(`${path}.tool_use_id`, `no tool_use block before has the id '${toolCallId}'`, 'invalid_value');
  }
  const text =
    typeof content === 'string'
      ? content
      : content.map((block, index) => textOf(block, `${path}.content[${index}]`)).join('\n');
  return { role: 'tool', content: isError === true ? `Error: ${text}` : text, toolCallId, name };
}

function textOf({ type, text }: Pick<RequestBlock, 'type' | 'text'>, path: string): string {
  if (type !== 'text') throw unsupportedBlock(type, path);
  if (text === undefined) throw badRequest(path, 'must have a text', 'invalid_value');
  return text;
}

function unsupportedBlock(type: string, path: string): Error {
  return badRequest(path, `blocks of type '${type}' are not supported here`, 'unsupported_value');
}

function toolsOf({ tools = [] }: CountTokensRequest): Tools | undefined {
  if (tools.length === 0) return undefined;
  return tools.map(({ type, name, description, input_schema: parameters }, index) => {
    if (type !== undefined && type !== null && type !== 'custom') {
      throw unsupported(`tools[${index}].type`, `this server runs no tools of its own, such as '${type}'`);
    }
    return { name, ...definedFields<Tools[number]>({ description, parameters: parameters as JsonSchema }) };
  });
}

function toolChoiceOf({ tool_choice: choice, tools = [] }: CountTokensRequest): ChatRequest['toolChoice'] {
  if (choice === undefined) return undefined;
  if (choice.type === 'none') return 'none';
  if (tools.length === 0) throw badRequest('tool_choice', 'needs tools', 'invalid_value');
  if (choice.type === 'auto') return 'auto';
  if (choice.type === 'any') return 'required';
  const { name } = choice;
  if (name !== undefined && tools.some((tool) => tool.name === name)) return { name };
  throw badRequest('tool_choice.name', `'${name ?? ''}' is not among tools`, 'invalid_value');
}
