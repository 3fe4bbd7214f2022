/** Reads messages from files. */
import type { ChatMessage, ChatToolCall, Session } from '@winnow/engine';
import { definedFields, FormatError, isRecord } from '@winnow/tensor';

/** A message as JSON: arguments of calls were read from JSON. */
export function savedMessage(message: ChatMessage): Readonly<Record<string, Session['metadata']>> {
  const { role, content, reasoning, toolCalls, toolCallId, name } = message;
  const calls = toolCalls as Session['metadata'] | undefined;
  return { role, content, ...definedFields({ reasoning, toolCalls: calls, toolCallId, name }) };
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
    const texts = optionalTexts.filter((name) => typeof fields[name] === 'string').map((name) => [name, fields[name]]);
    return {
      ...{ role: fields['role'], content: fields['content'] },
      ...(Object.fromEntries(texts) as Partial<ChatMessage>),
      ...(calls === undefined ? {} : { toolCalls: calls as ChatToolCall[] }),
    };
  });
}

const optionalTexts = ['reasoning', 'toolCallId', 'name'] as const;

function isCall(value: unknown): boolean {
  if (!isRecord(value)) return false;
  const { id, name, arguments: values } = value;
  return (id === undefined || typeof id === 'string') && typeof name === 'string' && isRecord(values);
}
