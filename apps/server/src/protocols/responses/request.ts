/** Converts a request of the Responses API to a chat call. */
import type { ChatMessage, ChatRequest, GenerateOptions } from '@winnow/engine';
import { definedFields } from '@winnow/tensor';
import { badRequest, missingParameter, unsupported } from '../../http/api-error.js';
import { jsonObjectOf, type ChatCall } from '../../requests/prepared-chat.js';
import { imageOfUrl, imagesField } from '../../requests/request-images.js';
import { samplingOptionsOf } from '../../requests/sampling.js';
import type { InputItem, ResponseRequest } from './schemas.js';

type JsonSchema = NonNullable<ChatRequest['jsonSchema']>;
type Tools = NonNullable<ChatRequest['tools']>;
type ToolCall = NonNullable<ChatMessage['toolCalls']>[number];

/** The items of a request's input. */
export function inputItems({ input }: ResponseRequest): readonly InputItem[] {
  return typeof input === 'string' ? [{ type: 'message', role: 'user', content: input }] : input;
}

/**
 * @param previous items of the conversation that the request continues
 * @throws {ApiError} 400 for items that the server cannot pass to a model
 */
export function callOf(body: ResponseRequest, previous: readonly InputItem[]): ChatCall {
  const { instructions, include = [], top_logprobs: numTop } = body;
  const wantsLogprobs = include.includes('message.output_text.logprobs');
  if (numTop !== undefined && !wantsLogprobs) {
    throw badRequest('top_logprobs', "needs 'message.output_text.logprobs' in include", 'invalid_value');
  }
  const system = instructions === undefined ? [] : [{ role: 'system', content: instructions }];
  return {
    request: {
      messages: [...system, ...messagesOf(previous, inputItems(body))],
      ...definedFields<ChatRequest>({
        tools: toolsOf(body),
        toolChoice: toolChoiceOf(body),
        parallelToolCalls: body.parallel_tool_calls,
        jsonSchema: jsonSchemaOf(body),
        templateVariables: variablesOf(body),
      }),
    },
    options: {
      ...samplingOptionsOf(body),
      ...definedFields<GenerateOptions>({ maxTokens: body.max_output_tokens, numTopLogprobs: numTop }),
    },
    wantsLogprobs,
    promptParam: 'input',
  };
}

function variablesOf({ reasoning }: ResponseRequest): ChatRequest['templateVariables'] {
  const effort = reasoning?.effort ?? undefined;
  if (effort === undefined) return undefined;
  return effort === 'none' ? { enable_thinking: false } : { enable_thinking: true, reasoning_effort: effort };
}

/** Reasoning belongs to the assistant's message after it, and so do calls that follow a text, reasoning or another call. */
function messagesOf(previous: readonly InputItem[], items: readonly InputItem[]): ChatMessage[] {
  const messages: ChatMessage[] = [];
  const names = new Map<string, string>(); // of calls, by id
  for (const [index, item] of [...previous, ...items].entries()) {
    const path = `input[${index - previous.length}]`;
    const { type = 'message' } = item;
    if (type === 'message') addMessage(messages, messageOf(item, path));
    else if (type === 'function_call') addCall(messages, callItem(item, path, names));
    else if (type === 'function_call_output') messages.push(outputOf(item, path, names));
    else if (type === 'reasoning') addReasoning(messages, reasoningOf(item, path));
    else throw badRequest(`${path}.type`, `items of type '${type}' are not supported`, 'unsupported_value');
  }
  return messages;
}

/** The whole reasoning, or its summary if the client has only that. */
function reasoningOf({ content, summary = [] }: InputItem, path: string): string {
  const parts = typeof content === 'string' || (content?.length ?? 0) > 0 ? content : summary;
  return parts === undefined || parts === null
    ? ''
    : textOf(parts, `${path}.content`, { texts: ['reasoning_text', 'summary_text'] });
}

/** A message of reasoning alone, which a text or a call completes. */
function addReasoning(messages: ChatMessage[], text: string): void {
  const last = messages.at(-1);
  if (text === '') return;
  if (last !== undefined && isReasoning(last)) {
    messages[messages.length - 1] = { ...last, reasoning: `${last.reasoning}\n${text}` };
  } else messages.push({ role: 'assistant', content: '', reasoning: text });
}

function addMessage(messages: ChatMessage[], message: ChatMessage): void {
  const last = messages.at(-1);
  if (message.role === 'assistant' && last !== undefined && isReasoning(last)) {
    messages[messages.length - 1] = { ...last, ...message };
  } else messages.push(message);
}

function isReasoning({ reasoning, content, toolCalls }: ChatMessage): boolean {
  return reasoning !== undefined && content === '' && toolCalls === undefined;
}

/** Templates have no developer role: its messages become system messages. */
function messageOf({ role, content }: InputItem, path: string): ChatMessage {
  if (role === undefined) throw missingParameter(`${path}.role`);
  if (content === undefined || content === null) throw missingParameter(`${path}.content`);
  const at = `${path}.content`;
  return {
    role: role === 'developer' ? 'system' : role,
    content: textOf(content, at, { silent: ['input_image'] }),
    ...imagesOf(content, at),
  };
}

/** The images of a message, which stand before its text. */
function imagesOf(content: NonNullable<InputItem['content']>, path: string): Pick<ChatMessage, 'images'> {
  if (typeof content === 'string') return {};
  const images = content.flatMap(({ type, image_url: url }, index) =>
    type === 'input_image' ? [imageOfUrl(url ?? '', `${path}[${index}].image_url`)] : [],
  );
  return imagesField(images);
}

function callItem(
  { call_id: id, name, arguments: text }: InputItem,
  path: string,
  names: Map<string, string>,
): ToolCall {
  if (id === undefined || name === undefined)
    throw missingParameter(`${path}.${id === undefined ? 'call_id' : 'name'}`);
  names.set(id, name);
  return { id, name, arguments: jsonObjectOf(text ?? '', `${path}.arguments`) };
}

function addCall(messages: ChatMessage[], call: ToolCall): void {
  const last = messages.at(-1);
  if (last?.role !== 'assistant') messages.push({ role: 'assistant', content: '', toolCalls: [call] });
  else messages[messages.length - 1] = { ...last, toolCalls: [...(last.toolCalls ?? []), call] };
}

function outputOf(
  { call_id: toolCallId, output = '' }: InputItem,
  path: string,
  names: ReadonlyMap<string, string>,
): ChatMessage {
  const name = names.get(toolCallId ?? '');
  if (toolCallId === undefined || name === undefined) {
    throw badRequest(`${path}.call_id`, `no function_call before has the id '${toolCallId ?? ''}'`, 'invalid_value');
  }
  return { role: 'tool', content: textOf(output, `${path}.output`), toolCallId, name };
}

/** The types that the parts of a list may have. */
interface PartTypes {
  /** Default: those of messages. */
  readonly texts?: readonly string[];
  /** Parts that are not text and are read elsewhere. */
  readonly silent?: readonly string[];
}

function textOf(
  content: NonNullable<InputItem['content']>,
  path: string,
  { texts: types = ['input_text', 'output_text'], silent = [] }: PartTypes = {},
): string {
  if (typeof content === 'string') return content;
  const texts = content.map(({ type, text }, index) => {
    if (silent.includes(type)) return '';
    if (types.includes(type) && text !== undefined) return text;
    throw badRequest(
      `${path}[${index}]`,
      `'${type}' is not supported, only ${[...types, ...silent].join(', ')}`,
      'unsupported_value',
    );
  });
  return texts.join('');
}

function toolsOf({ tools = [] }: ResponseRequest): Tools | undefined {
  if (tools.length === 0) return undefined;
  return tools.map(({ type, name, description, parameters }, index) => {
    if (type !== 'function') throw unsupported(`tools[${index}].type`, `this server runs no tools, such as '${type}'`);
    if (name === undefined) throw missingParameter(`tools[${index}].name`);
    return {
      name,
      ...definedFields<Tools[number]>({
        description: description ?? undefined,
        parameters: (parameters ?? undefined) as JsonSchema | undefined,
      }),
    };
  });
}

function toolChoiceOf({ tool_choice: choice, tools = [] }: ResponseRequest): ChatRequest['toolChoice'] {
  if (choice === undefined || choice === 'none') return choice;
  if (tools.length === 0 && choice !== 'auto') throw badRequest('tool_choice', 'needs tools', 'invalid_value');
  if (typeof choice === 'string') return choice;
  if (tools.some(({ name }) => name === choice.name)) return { name: choice.name };
  throw badRequest('tool_choice.name', `'${choice.name}' is not among tools`, 'invalid_value');
}

function jsonSchemaOf({ text }: ResponseRequest): JsonSchema | undefined {
  const { type = 'text', schema } = text?.format ?? {};
  if (type === 'text') return undefined;
  if (type === 'json_object') return { type: 'object' };
  if (schema !== undefined) return schema as JsonSchema;
  throw missingParameter('text.format.schema');
}
