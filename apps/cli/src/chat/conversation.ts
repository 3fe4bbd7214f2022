/** A conversation with a model: its messages, its cache, and one reply at a time. */
import type { ChatMessage, GenerateOptions, GenerationResult, Model, SamplingOptions, Session } from '@winnow/engine';
import { streamGeneration } from '../terminal/stream-generation.js';

export interface ConversationOptions {
  readonly limits: GenerateOptions;
  readonly sampling: SamplingOptions;
  /** Seed of the first reply; each further one uses the next seed. */
  readonly seed: number;
  readonly system: string | undefined;
  /** Display name of the model. */
  readonly name: string;
}

export class Conversation {
  readonly model: Model;
  readonly name: string;
  system: string | undefined;
  /** Messages of user and assistant; the system message is separate. */
  messages: ChatMessage[] = [];
  lastResult: GenerationResult | undefined;
  readonly #session: Session;
  readonly #options: ConversationOptions;
  #nextSeed: number;

  constructor(model: Model, session: Session, options: ConversationOptions) {
    this.model = model;
    this.name = options.name;
    this.system = options.system;
    this.#session = session;
    this.#options = options;
    this.#nextSeed = options.seed;
  }

  get numCachedTokens(): number {
    return this.#session.tokens.length;
  }

  /** All messages as the model sees them. */
  transcript(): ChatMessage[] {
    return this.system === undefined
      ? [...this.messages]
      : [{ role: 'system', content: this.system }, ...this.messages];
  }

  replaceAll(messages: readonly ChatMessage[]): void {
    const [first, ...rest] = messages;
    const hasSystem = first?.role === 'system';
    this.system = hasSystem ? first.content : undefined;
    this.messages = hasSystem ? rest : [...messages];
  }

  reset(): void {
    this.messages = [];
    this.lastResult = undefined;
    this.#session.reset();
  }

  /** Drops the last reply; false when the conversation does not end with one. */
  dropReply(): boolean {
    if (this.messages.at(-1)?.role !== 'assistant') return false;
    this.messages.pop();
    return true;
  }

  /**
   * Adds a message and streams the reply to it. If it fails before its first token, the message is removed.
   * @returns whether the reply is complete; the text of an aborted one is kept
   */
  async say(text: string, host: ReplyHost): Promise<boolean> {
    this.messages.push({ role: 'user', content: text });
    try {
      return await this.reply(host);
    } catch (error) {
      this.messages.pop();
      throw error;
    }
  }

  async reply({ signal, write, onPromptProgress }: ReplyHost): Promise<boolean> {
    const options: GenerateOptions = {
      ...this.#options.limits,
      ...this.#options.sampling,
      seed: this.#nextSeed,
      signal,
      onPromptProgress,
    };
    const streamed = await streamGeneration(this.#session.generate(this.transcript(), options), write);
    this.#nextSeed += 1;
    this.messages.push({ role: 'assistant', content: streamed.text });
    this.lastResult = streamed.result ?? this.lastResult;
    if (streamed.error !== undefined && !signal.aborted) throw streamed.error;
    return streamed.result !== undefined;
  }
}

export interface ReplyHost {
  readonly signal: AbortSignal;
  readonly write: (piece: string) => Promise<void>;
  readonly onPromptProgress: NonNullable<GenerateOptions['onPromptProgress']>;
}
