/** The smaller contract: texts without token ids, which every engine, peer and cluster can generate. */
import { ArgumentError } from '@winnow/tensor';
import type { InferenceFinishReason, InferenceOptions, InferencePrompt } from './contract.js';

/** A piece of an answer. */
export interface TextPiece {
  readonly text: string;
}

export interface TextResult extends TextPiece {
  /** `stop` may also mean the end token of the model: servers do not distinguish them. */
  readonly finishReason: InferenceFinishReason;
  /** Undefined if the server did not report it. */
  readonly numPromptTokens: number | undefined;
}

/** A generation that starts when it is first iterated or its result is requested. Leaving a loop early ends it. */
export interface TextStream extends AsyncIterable<TextPiece> {
  /** Generates the remaining pieces and returns the complete result. */
  result(): Promise<TextResult>;
}

/** A generator of texts. Every `InferenceBackend` is one. */
export interface TextBackend {
  readonly name: string;
  /** Returns the complete answer. */
  generate(prompt: InferencePrompt, options?: InferenceOptions): Promise<TextResult>;
  /** Streams the answer; errors surface in the iteration and in `result`. */
  generateStream(prompt: InferencePrompt, options?: InferenceOptions): TextStream;
}

/** The pieces of an answer, and its result at the end. */
export type TextPieces = AsyncGenerator<TextPiece, TextResult, void>;

/** A stream over a generator, which it runs once. */
export class PulledStream implements TextStream {
  readonly #pieces: TextPieces;
  #result: TextResult | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(pieces: TextPieces) {
    this.#pieces = pieces;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TextPiece, void, void> {
    try {
      for (;;) {
        const { done, value } = await this.#next();
        if (done === true) {
          this.#result ??= value as TextResult | undefined; // a generator returns its result once
          return;
        }
        yield value;
      }
    } finally {
      await this.#pieces.return(undefined as never);
    }
  }

  async result(): Promise<TextResult> {
    for await (const _piece of this);
    if (this.#result !== undefined) return this.#result;
    const [expected, actual] = ['a stream whose loop ran to the end', 'a loop that was left early'];
    throw new ArgumentError({ argument: 'result', expected, actual });
  }

  /** Repeats an earlier failure, because a failed generator just ends at the next call. */
  async #next(): Promise<IteratorResult<TextPiece, TextResult>> {
    try {
      const next = await this.#pieces.next();
      if (this.#failure === undefined) return next;
    } catch (error) {
      this.#failure ??= { error };
      throw error;
    }
    throw this.#failure.error;
  }
}
