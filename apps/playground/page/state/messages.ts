/** What a conversation consists of. Plain data: it is stored as it is. */
import type { AnswerToken, ChatUsage, PromptMessage } from '../backend/contract.js';

/** `stopped`: by the user, or because the page was left. */
export type MessageState = 'done' | 'streaming' | 'stopped' | 'cut' | 'failed';

/** A file that is part of a message as text. */
export interface Attachment {
  readonly name: string;
  readonly sizeBytes: number;
  readonly text: string;
}

export interface Message {
  readonly role: 'user' | 'assistant';
  readonly content: string;
  readonly reasoning: string;
  /** Of the user. */
  readonly attachments?: readonly Attachment[];
  readonly state: MessageState;
  /** Why it failed. */
  readonly error?: string;
  /** The model that wrote it. */
  readonly model?: string;
  readonly tokens?: readonly AnswerToken[];
  readonly usage?: ChatUsage;
  /** From the first text to the last. */
  readonly durationMs?: number;
}

export interface Conversation {
  readonly id: string;
  readonly title: string;
  /** Milliseconds since 1970. */
  readonly updatedAt: number;
}

const maxTitleLength = 60;

export function userMessage(content: string, attachments: readonly Attachment[] = []): Message {
  return { role: 'user', content, reasoning: '', state: 'done', ...(attachments.length > 0 && { attachments }) };
}

/**
 * The messages that the model reads, after the system prompt if there is one. An answer without text, such as one that
 * failed, is left out; messages of the user that follow each other become one, since templates expect turns.
 */
export function promptOf(systemPrompt: string, messages: readonly PromptMessage[]): readonly PromptMessage[] {
  const prompt: PromptMessage[] = systemPrompt.trim() === '' ? [] : [{ role: 'system', content: systemPrompt }];
  for (const { role, content } of messages) {
    const last = prompt.at(-1);
    if (role === 'assistant' && content.trim() === '') continue;
    if (role === 'user' && last?.role === 'user') {
      prompt[prompt.length - 1] = { role, content: `${last.content}\n\n${content}` };
    } else prompt.push({ role, content });
  }
  return prompt;
}

export function titleOf(text: string): string {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length <= maxTitleLength ? line : `${line.slice(0, maxTitleLength - 1)}…`;
}
