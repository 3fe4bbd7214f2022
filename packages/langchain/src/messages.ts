/** Converts messages of LangChain to messages of the engine. */
import { AIMessage, HumanMessage, parseBase64DataUrl, ToolMessage, type BaseMessage } from '@langchain/core/messages';
import type { ChatMessage } from '@winnow/engine';
import { ArgumentError, isRecord } from '@winnow/tensor';

const roles: Readonly<Record<string, string>> = {
  human: 'user',
  ai: 'assistant',
  system: 'system',
  developer: 'system',
  tool: 'tool',
};

/** Parts of an answer that are no text: tool calls come from `tool_calls`, and reasoning is taken from its parts. */
const silentParts = new Set(['tool_use', 'tool_call', 'tool_call_chunk', 'reasoning', 'thinking', 'redacted_thinking']);

/** Images of the user, in the forms of OpenAI and of LangChain's content blocks. */
const imageParts = new Set(['image', 'image_url']);

/** @throws {ArgumentError} for content that is neither text nor an image of the user, and for images that are no files */
export function toChatMessages(messages: readonly BaseMessage[]): ChatMessage[] {
  return messages.map((message, index) => {
    const chatMessage: ChatMessage & { reasoning?: string } = {
      role: roleOf(message, index),
      content: textOf(message, index),
    };
    if (ToolMessage.isInstance(message)) {
      const { tool_call_id: toolCallId, name } = message;
      return { ...chatMessage, toolCallId, ...(name === undefined ? {} : { name }) };
    }
    if (HumanMessage.isInstance(message)) return { ...chatMessage, ...imagesOf(message, index) };
    if (!AIMessage.isInstance(message)) return chatMessage;
    const reasoning = reasoningOf(message);
    if (reasoning !== '') chatMessage.reasoning = reasoning;
    if (message.tool_calls === undefined || message.tool_calls.length === 0) return chatMessage;
    const toolCalls = message.tool_calls.map(({ id, name, args }) => ({
      name,
      arguments: args as Readonly<Record<string, unknown>>,
      ...(id === undefined ? {} : { id }),
    }));
    return { ...chatMessage, toolCalls };
  });
}

/** Reads `additional_kwargs.reasoning_content`, or the parts that LangChain's providers write. */
function reasoningOf({ additional_kwargs, content }: AIMessage): string {
  const { reasoning_content: whole } = additional_kwargs;
  if (typeof whole === 'string') return whole;
  if (typeof content === 'string') return '';
  const texts = content.map((part) => (part.type === 'reasoning' ? part['reasoning'] : part['thinking']));
  return texts.filter((text) => typeof text === 'string').join('');
}

function roleOf(message: BaseMessage, index: number): string {
  const role = Object.hasOwn(roles, message.type) ? roles[message.type] : (message as { role?: unknown }).role;
  if (typeof role === 'string' && role !== '') return role;
  const expected = [...Object.keys(roles), 'a generic message with a role'].join(' | ');
  throw new ArgumentError({ argument: `messages[${index}]`, expected, actual: message.type });
}

function textOf(message: BaseMessage, index: number): string {
  const { content } = message;
  if (typeof content === 'string') return content;
  return content
    .map((part, at) => {
      if (part.type === 'text' && typeof part['text'] === 'string') return part['text'];
      if (AIMessage.isInstance(message) && silentParts.has(part.type)) return '';
      if (HumanMessage.isInstance(message) && imageParts.has(part.type)) return '';
      const argument = `messages[${index}].content[${at}]`;
      const expected = HumanMessage.isInstance(message) ? 'text or an image' : 'text';
      throw new ArgumentError({ argument, expected, actual: String(part.type) });
    })
    .join('');
}

/** The images of a message, which come before its text. */
function imagesOf({ content }: BaseMessage, index: number): Pick<ChatMessage, 'images'> {
  if (typeof content === 'string') return {};
  const images = content.flatMap((part, at) =>
    imageParts.has(part.type) ? [imageOf(part, `messages[${index}].content[${at}]`)] : [],
  );
  return images.length === 0 ? {} : { images };
}

function imageOf(part: Readonly<Record<string, unknown>>, argument: string): Uint8Array {
  const { image_url: named, data } = part;
  if (data instanceof Uint8Array) return data;
  const url = isRecord(named) ? named['url'] : (named ?? part['url']);
  const dataUrl = typeof data === 'string' ? `data:image/png;base64,${data}` : url;
  if (typeof dataUrl === 'string' && dataUrl.startsWith('data:')) {
    const file = bytesOf(dataUrl);
    if (file !== undefined) return file;
  }
  const expected = 'an image as bytes or in base64, since nothing is fetched';
  const actual = typeof url === 'string' ? `the URL ${url.slice(0, 80)}` : Object.keys(part).join(', ');
  throw new ArgumentError({ argument, expected, actual });
}

function bytesOf(dataUrl: string): Uint8Array | undefined {
  try {
    return parseBase64DataUrl({ dataUrl, asTypedArray: true })?.data;
  } catch {
    return undefined; // not base64
  }
}
