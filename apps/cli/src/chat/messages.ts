/** Messages in files. */
import type { ChatMessage, ChatToolCall, Session } from '@winnow/engine';
import { definedFields, FormatError, isRecord, WinnowError } from '@winnow/tensor';
import { readImageHeader } from '@winnow/vision';

/** A message as JSON: arguments of calls were read from JSON, and images are files in base64. */
export function savedMessage(message: ChatMessage): Readonly<Record<string, Session['metadata']>> {
  const { role, content, reasoning, toolCalls, toolCallId, name } = message;
  const calls = toolCalls as Session['metadata'] | undefined;
  const images = filesOf(message)?.map((file) => Buffer.from(file).toString('base64'));
  return { role, content, ...definedFields({ images, reasoning, toolCalls: calls, toolCallId, name }) };
}

/** Images of a chat are files, as they were read. */
function filesOf({ images }: ChatMessage): readonly Uint8Array[] | undefined {
  return images as readonly Uint8Array[] | undefined;
}

/** The messages with the latest images, of which the files have at most `maxBytes`. */
export function withLatestImages(
  messages: readonly ChatMessage[],
  maxBytes: number,
): { readonly messages: readonly ChatMessage[]; readonly numDropped: number } {
  let room = maxBytes;
  let numDropped = 0;
  const isKept = ({ byteLength }: Uint8Array): boolean => {
    room = byteLength <= room ? room - byteLength : -1; // none that is older than one that does not fit
    if (room < 0) numDropped += 1;
    return room >= 0;
  };
  const kept = messages.toReversed().map((message) => {
    const { images: _images, ...others } = message;
    const files = filesOf(message)?.toReversed().filter(isKept).toReversed() ?? [];
    return files.length === 0 ? others : { ...others, images: files };
  });
  return { messages: kept.toReversed(), numDropped };
}

/** @throws {FormatError} unless this is a list of messages */
export function checkedMessages(messages: unknown, source: string): ChatMessage[] {
  if (!Array.isArray(messages)) {
    throw new FormatError({ source, field: 'messages', message: 'expected a list of messages' });
  }
  return messages.map((message: unknown, index) => {
    const fields = (message ?? {}) as Readonly<Record<string, unknown>>;
    if (typeof fields['role'] !== 'string' || typeof fields['content'] !== 'string') {
      const field = `messages[${index}]`;
      throw new FormatError({ source, field, message: 'expected role and content, both strings' });
    }
    const calls = fields['toolCalls'];
    if (calls !== undefined && !(Array.isArray(calls) && calls.every(isCall))) {
      const field = `messages[${index}].toolCalls`;
      throw new FormatError({ source, field, message: 'expected a list of calls with name and arguments' });
    }
    const images = fields['images'];
    const texts = optionalTexts.filter((name) => typeof fields[name] === 'string').map((name) => [name, fields[name]]);
    return {
      ...{ role: fields['role'], content: fields['content'] },
      ...(images === undefined ? {} : { images: checkedImages(images, source, `messages[${index}].images`) }),
      ...(Object.fromEntries(texts) as Partial<ChatMessage>),
      ...(calls === undefined ? {} : { toolCalls: calls as ChatToolCall[] }),
    };
  });
}

const optionalTexts = ['reasoning', 'toolCallId', 'name'] as const;

function checkedImages(images: unknown, source: string, field: string): readonly Uint8Array[] {
  const message = 'expected a list of PNG, JPEG or WebP files in base64';
  if (!Array.isArray(images)) throw new FormatError({ source, field, message });
  return images.map((image: unknown) => {
    const bytes = new Uint8Array(Buffer.from(typeof image === 'string' ? image : '', 'base64'));
    try {
      readImageHeader(bytes, { name: field });
      return bytes;
    } catch (cause) {
      if (!WinnowError.isInstance(cause)) throw cause;
      throw new FormatError({ source, field, message: `${message}: ${cause.message}` }, { cause });
    }
  });
}

function isCall(value: unknown): boolean {
  if (!isRecord(value)) return false;
  const { id, name, arguments: values } = value;
  return (id === undefined || typeof id === 'string') && typeof name === 'string' && isRecord(values);
}
