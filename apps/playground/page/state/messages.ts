/** What a conversation consists of. Plain data: it is stored as it is. */
import type { AnswerToken, ChatUsage, ToolCall } from '../backend/contract.js';

/** `stopped`: by the user, or because the page was left. */
export type MessageState = 'done' | 'streaming' | 'stopped' | 'cut' | 'failed';

/** A file that is part of a message as text. */
export interface TextAttachment {
  readonly name: string;
  readonly sizeBytes: number;
  readonly text: string;
}

export interface ImageAttachment {
  readonly name: string;
  readonly sizeBytes: number;
  /** A `data:` URL. */
  readonly image: string;
}

export type Attachment = TextAttachment | ImageAttachment;

/** A call of an answer, and its result when it has been made. */
export interface MadeCall extends ToolCall {
  readonly result?: string;
}

export interface Message {
  readonly role: 'user' | 'assistant';
  readonly content: string;
  readonly reasoning: string;
  /** Of the user. */
  readonly attachments?: readonly Attachment[];
  /** Of an answer that ends with calls; another answer follows. */
  readonly calls?: readonly MadeCall[];
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

export function titleOf(text: string): string {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length <= maxTitleLength ? line : `${line.slice(0, maxTitleLength - 1)}…`;
}
