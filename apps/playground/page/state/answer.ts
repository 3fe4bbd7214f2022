/** The message that an answer becomes, event by event. */
import type { AnswerToken, ChatEvent, ChatUsage, ToolCall } from '../backend/contract.js';
import type { Message, MessageState } from './messages.js';

export class AnswerBuilder {
  readonly #model: string;
  readonly #now: () => number;
  readonly #tokens: AnswerToken[] = [];
  #content = '';
  #reasoning = '';
  #calls: readonly ToolCall[] = [];
  #usage: ChatUsage | undefined;
  #firstMs: number | undefined;
  #lastMs = 0;
  #isCut = false;

  constructor(model: string, now: () => number) {
    this.#model = model;
    this.#now = now;
  }

  push(event: ChatEvent): void {
    switch (event.type) {
      case 'text':
        this.#content += event.text;
        this.#mark();
        break;
      case 'reasoning':
        this.#reasoning += event.text;
        this.#mark();
        break;
      case 'tokens':
        this.#tokens.push(...event.tokens);
        break;
      case 'call-start':
        this.#mark();
        break;
      case 'calls':
        this.#calls = event.calls;
        break;
      case 'usage':
        this.#usage = event.usage;
        break;
      case 'end':
        this.#isCut = event.reason === 'length';
    }
  }

  /** @param state absent: that of a complete answer */
  message(state?: MessageState, error?: string): Message {
    return {
      role: 'assistant',
      content: this.#content,
      reasoning: this.#reasoning,
      state: state ?? (this.#isCut ? 'cut' : 'done'),
      model: this.#model,
      ...(this.#calls.length === 0 ? {} : { calls: this.#calls }),
      ...(error === undefined ? {} : { error }),
      ...(this.#tokens.length === 0 ? {} : { tokens: [...this.#tokens] }),
      ...(this.#usage === undefined ? {} : { usage: this.#usage }),
      ...(this.#firstMs === undefined ? {} : { durationMs: this.#lastMs - this.#firstMs }),
    };
  }

  #mark(): void {
    this.#lastMs = this.#now();
    this.#firstMs ??= this.#lastMs;
  }
}
