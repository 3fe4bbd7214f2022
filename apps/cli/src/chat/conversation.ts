/** A conversation with a model: its messages, its cache, and one reply at a time. */
import {
  prepareChat,
  type ChatMessage,
  type ChatPart,
  type ChatRequest,
  type GenerateOptions,
  type GenerationResult,
  type Model,
  type SamplingOptions,
  type Session,
} from '@winnow/engine';
import { definedFields } from '@winnow/tensor';
import { streamGeneration } from '../terminal/stream-generation.js';

export interface ConversationOptions {
  readonly limits: GenerateOptions;
  readonly sampling: SamplingOptions;
  /** How much the model reasons before it replies. */
  readonly reasoning: Pick<ChatRequest, 'reasoningEffort' | 'maxReasoningTokens'>;
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

  async reply({ signal, write, writeReasoning, onPromptProgress }: ReplyHost): Promise<boolean> {
    const { limits, sampling, reasoning } = this.#options;
    const { jsonSchema, ...others } = limits;
    const request: ChatRequest = {
      messages: this.transcript(),
      ...definedFields<ChatRequest>({ ...reasoning, jsonSchema }),
    };
    const turn = await prepareChat(this.model, request, { signal });
    const options: GenerateOptions = {
      ...{ ...others, ...sampling, seed: this.#nextSeed, signal, onPromptProgress },
      ...turn.options,
    };
    const reader = turn.createReader();
    const reply = { text: '', reasoning: '' };
    const show = async (parts: readonly ChatPart[]): Promise<void> => {
      for (const part of parts) {
        if (part.type !== 'text' && part.type !== 'reasoning') continue; // a chat without tools has no calls
        reply[part.type] += part.text;
        await (part.type === 'text' ? write : writeReasoning)(part.text);
      }
    };
    const streamed = await streamGeneration(this.#session.generate(turn.prompt, options), (piece) =>
      show(reader.push(piece)),
    );
    await show(reader.end());
    this.#nextSeed += 1;
    const thoughts = reply.reasoning === '' ? {} : { reasoning: reply.reasoning };
    this.messages.push({ role: 'assistant', content: reply.text, ...thoughts });
    this.lastResult = streamed.result ?? this.lastResult;
    if (streamed.error !== undefined && !signal.aborted) throw streamed.error;
    return streamed.result !== undefined;
  }
}

export interface ReplyHost {
  readonly signal: AbortSignal;
  readonly write: (piece: string) => Promise<void>;
  readonly writeReasoning: (piece: string) => Promise<void>;
  readonly onPromptProgress: NonNullable<GenerateOptions['onPromptProgress']>;
}
