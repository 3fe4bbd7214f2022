/** One call of `embedTexts`: batches its texts and averages the vectors of a text's chunks, weighted by token count. */
import type { EmbeddingStep } from './step.js';
import type { FittedText } from './text.js';
import { noTokenValues, type TokenOutputReader, type TokenValues } from './token-outputs.js';

export interface EmbeddingProgress {
  readonly embeddedTexts: number;
  readonly totalTexts: number;
  readonly embeddedTokens: number;
}

export interface EmbeddingRunOptions {
  /** Throws when the run must stop. */
  readonly check: () => void;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: EmbeddingProgress) => void) | undefined;
  /** Reads further outputs. Default: none. */
  readonly reader?: TokenOutputReader | undefined;
}

/** A text and the sum of its vectors so far. */
export interface EmbeddedText extends FittedText {
  /** The vectors of the chunks, each times its number of tokens. */
  readonly sum: Float64Array;
  readonly tokenValues: TokenValues;
  numTokens: number;
  numChunksDone: number;
}

interface Member {
  readonly text: EmbeddedText;
  readonly ids: Int32Array;
}

export class EmbeddingRun {
  readonly #step: EmbeddingStep;
  readonly #options: EmbeddingRunOptions;
  readonly #texts: readonly EmbeddedText[];
  /** The chunks of the batch. */
  #members: Member[] = [];
  #embeddedTexts = 0;
  #embeddedTokens = 0;

  constructor(step: EmbeddingStep, texts: readonly FittedText[], hiddenDim: number, options: EmbeddingRunOptions) {
    this.#step = step;
    this.#options = options;
    this.#texts = texts.map((text) => ({
      ...text,
      sum: new Float64Array(hiddenDim),
      tokenValues: noTokenValues(),
      numTokens: 0,
      numChunksDone: 0,
    }));
  }

  async embed(): Promise<readonly EmbeddedText[]> {
    try {
      for (const text of this.#texts) {
        for (const [index, ids] of text.chunks.entries()) {
          if (!this.#step.hasRoom(ids.length)) await this.#runBatch();
          this.#step.add(ids, ids.length, text.numAttended?.[index]);
          this.#members.push({ text, ids });
        }
      }
      if (this.#members.length > 0) await this.#runBatch();
    } finally {
      this.#step.clear();
    }
    return this.#texts;
  }

  async #runBatch(): Promise<void> {
    const { check, signal, onProgress, reader } = this.#options;
    check();
    signal?.throwIfAborted();
    const numTokens = this.#members.reduce((sum, { ids }) => sum + ids.length, 0);
    const vectors = await this.#step.run(signal, reader && (() => reader.read(numTokens)));
    let begin = 0;
    for (const [row, member] of this.#members.entries()) {
      this.#add(member, vectors, row);
      reader?.add(member.text.tokenValues, member.ids, begin, member.text.skippedIds);
      begin += member.ids.length;
    }
    this.#members = [];
    const [embeddedTexts, embeddedTokens] = [this.#embeddedTexts, this.#embeddedTokens];
    onProgress?.({ embeddedTexts, totalTexts: this.#texts.length, embeddedTokens });
  }

  #add({ text, ids }: Member, vectors: Float32Array, row: number): void {
    const { sum } = text;
    const numTokens = ids.length;
    for (let i = 0; i < sum.length; i++) {
      sum[i] = (sum[i] as number) + numTokens * (vectors[row * sum.length + i] as number);
    }
    text.numTokens += numTokens;
    text.numChunksDone++;
    this.#embeddedTokens += numTokens;
    if (text.numChunksDone === text.chunks.length) this.#embeddedTexts++;
  }
}
