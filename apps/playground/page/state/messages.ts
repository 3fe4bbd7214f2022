/** What a conversation consists of. Plain data: it is stored as it is. */
import type { AnswerToken, ChatUsage, PromptMessage } from '../backend/contract.js';

/** `stopped`: by the user, or because the page was left. */
export type MessageState = 'done' | 'streaming' | 'stopped' | 'cut' | 'failed';

export interface Message {
  readonly role: 'user' | 'assistant';
  readonly content: string;
  readonly reasoning: string;
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

export function userMessage(content: string): Message {
  return { role: 'user', content, reasoning: '', state: 'done' };
}

/** The messages after the system prompt, if there is one. */
export function promptOf(systemPrompt: string, messages: readonly PromptMessage[]): readonly PromptMessage[] {
  return systemPrompt.trim() === '' ? messages : [{ role: 'system', content: systemPrompt }, ...messages];
}

export function titleOf(text: string): string {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length <= maxTitleLength ? line : `${line.slice(0, maxTitleLength - 1)}…`;
}
