/** One batch of texts: fills in the tokens and the scratch cache of an embedding program, and reads the vectors. */
import { embeddingBlockSize, rotaryRowsSlot, tokenTypesSlot, type RotaryLengths } from '@winnow/models';
import type { DeviceRecovery } from '../memory/device-recovery.js';
import { createScalarBlock, type Executable, type ScalarBlock } from '@winnow/ops';

/**
 * Minimum number of tokens of a batch: kernels may sum in another order for very few tokens, and a text must have the
 * same vector alone and in a batch. A smaller batch is padded with one text more than `maxTexts`.
 */
export const minStepTokens = 8;

/** Maximum number of tokens and texts per step. */
export interface EmbeddingStepSizes {
  readonly maxTokens: number;
  readonly maxTexts: number;
  /** For models whose RoPE depends on the length of the text. */
  readonly rotaryLengths: RotaryLengths | undefined;
}

/** What the program computes for each text. */
export interface EmbeddingOutput {
  readonly name: 'embeddings' | 'scores';
  /** Values per text. */
  readonly size: number;
}

export class EmbeddingStep {
  readonly #executable: Executable;
  readonly #deviceRecovery: DeviceRecovery;
  readonly #sizes: EmbeddingStepSizes;
  readonly #output: EmbeddingOutput;
  readonly #scalars: ScalarBlock;
  readonly #tokenTypes: Int32Array | undefined;
  readonly #rotaryRows: Int32Array | undefined;
  readonly #vectors: Float32Array; // [maxTexts, output.size]
  readonly #maxBlocks: number;
  #numTexts = 0;
  #numTokens = 0;
  #numBlocks = 0;

  constructor(
    executable: Executable,
    deviceRecovery: DeviceRecovery,
    sizes: EmbeddingStepSizes,
    output: EmbeddingOutput,
  ) {
    const { scalars, symbols } = executable.program;
    this.#executable = executable;
    this.#deviceRecovery = deviceRecovery;
    this.#sizes = sizes;
    this.#output = output;
    this.#scalars = createScalarBlock(scalars, symbols);
    this.#tokenTypes = scalars.slots.has(tokenTypesSlot) ? this.#scalars.slot(tokenTypesSlot) : undefined;
    this.#rotaryRows = scalars.slots.has(rotaryRowsSlot) ? this.#scalars.slot(rotaryRowsSlot) : undefined;
    this.#vectors = new Float32Array(sizes.maxTexts * output.size);
    this.#maxBlocks = this.#scalars.slot('blockTable').length / this.#scalars.slot('starts').length;
    // models with recurrent layers: every text starts from zeros, in its own row
    if (!scalars.slots.has('stateFrom')) return;
    this.#scalars.slot('stateFrom').fill(-1);
    this.#scalars.slot('stateTo').forEach((_, text, rows) => (rows[text] = text));
  }

  /** Whether a text of that many tokens fits into the batch. */
  hasRoom(numTokens: number): boolean {
    return this.#numTexts < this.#sizes.maxTexts && this.#numTokens + numTokens <= this.#sizes.maxTokens;
  }

  /**
   * Adds a text.
   * @param firstOfSecond index of the first token of segment 1. Default: the text is one segment
   * @param numAttended tokens at the beginning that are attended to. Default: all
   */
  add(ids: Int32Array, firstOfSecond: number = ids.length, numAttended: number = ids.length): void {
    this.#tokenTypes
      ?.fill(0, this.#numTokens, this.#numTokens + firstOfSecond)
      .fill(1, this.#numTokens + firstOfSecond, this.#numTokens + ids.length);
    const [tokens, positions] = [this.#scalars.slot('tokens'), this.#scalars.slot('positions')];
    const [sequences, slots] = [this.#scalars.slot('sequences'), this.#scalars.slot('slots')];
    const blockTable = this.#scalars.slot('blockTable');
    this.#scalars.slot('starts')[this.#numTexts] = this.#numTokens;
    this.#scalars.slot('contextLengths')[this.#numTexts] = numAttended;
    for (let position = 0; position < ids.length; position++) {
      const at = this.#numTokens + position;
      tokens[at] = ids[position] as number;
      positions[at] = position;
      sequences[at] = this.#numTexts;
      slots[at] = this.#numBlocks * embeddingBlockSize + position;
    }
    this.#rotate(ids.length);
    const numOwn = Math.ceil(ids.length / embeddingBlockSize);
    const begin = this.#numTexts * this.#maxBlocks;
    for (let block = 0; block < numOwn; block++) blockTable[begin + block] = this.#numBlocks + block;
    this.#numBlocks += numOwn;
    this.#numTokens += ids.length;
    this.#numTexts++;
  }

  /** Sets the rows of RoPE frequencies of the tokens of a text. */
  #rotate(numTokens: number): void {
    const { rotaryLengths } = this.#sizes;
    if (rotaryLengths === undefined || this.#rotaryRows === undefined) return;
    const key = rotaryLengths.keyOf(numTokens);
    for (let position = 0; position < numTokens; position++) {
      this.#rotaryRows[this.#numTokens + position] = rotaryLengths.rowOf(key, position);
    }
  }

  /**
   * Computes the output `[numTexts, size]`, which the next run overwrites, and empties the batch. After a device
   * loss it computes the batch again on a new device.
   * @param readMore reads further outputs, from each device that computes the batch
   */
  async run(signal: AbortSignal | undefined, readMore?: () => Promise<void>): Promise<Float32Array> {
    const count = this.#numTexts;
    if (this.#numTokens < minStepTokens) this.add(new Int32Array(minStepTokens - this.#numTokens));
    this.#scalars.bind('T', this.#numTokens);
    this.#scalars.bind('B', this.#numTexts);
    this.clear();
    return this.#deviceRecovery.run(async () => {
      signal?.throwIfAborted();
      await this.#executable.run(this.#scalars.words, signal === undefined ? {} : { signal });
      const vectors = this.#vectors.subarray(0, count * this.#output.size);
      await this.#executable.read(this.#output.name, vectors);
      await readMore?.();
      return vectors;
    });
  }

  /** Empties the batch. */
  clear(): void {
    this.#numTexts = 0;
    this.#numTokens = 0;
    this.#numBlocks = 0;
  }
}
