/** Reads messages from files. */
import type { ChatMessage } from '@winnow/engine';
import { FormatError } from '@winnow/tensor';

/** @throws {FormatError} unless this is a list of messages */
export function checkedMessages(messages: unknown, source: string): ChatMessage[] {
  if (!Array.isArray(messages)) {
    throw new FormatError({ source, field: 'messages', message: 'expected a list of messages' });
  }
  return messages.map((message: unknown, index) => {
    const { role, content, reasoning } = (message ?? {}) as Readonly<Record<string, unknown>>;
    if (typeof role === 'string' && typeof content === 'string') {
      return typeof reasoning === 'string' ? { role, content, reasoning } : { role, content };
    }
    throw new FormatError({ source, field: `messages[${index}]`, message: 'expected role and content, both strings' });
  });
}
