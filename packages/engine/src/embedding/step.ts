/** Runs texts through a program that embeds: fills in a step's tokens and scratch cache, and reads the vectors. */
import { embeddingBlockSize } from '@winnow/models';
import { createScalarBlock, type Executable } from '@winnow/ops';

/** Texts of one step. */
export interface EmbeddingStep {
  /** Whether a text of so many tokens fits beside those that are in already. */
  hasRoom(numTokens: number): boolean;
  /** Adds a text. */
  add(ids: Int32Array): void;
  readonly numTexts: number;
  readonly numTokens: number;
  /** Computes the vectors `[numTexts, hiddenDim]`, which are overwritten by the next run, and empties the step. */
  run(signal: AbortSignal | undefined): Promise<Float32Array>;
  /** Empties the step. */
  clear(): void;
}

/**
 * Tokens that a step has at least: kernels may add up in another order where there are very few, and a text shall have the
 * same vector alone as beside others. A step of less gets a filler, one text more than `maxTexts`.
 */
export const minStepTokens = 8;

export function createEmbeddingStep(
  executable: Executable,
  { maxTokens, maxTexts, hiddenDim }: { maxTokens: number; maxTexts: number; hiddenDim: number },
): EmbeddingStep {
  const { scalars: layout, symbols } = executable.program;
  const scalars = createScalarBlock(layout, symbols);
  const slot = (name: string): Int32Array => scalars.slot(name);
  const [tokens, positions, sequences, slots] = ['tokens', 'positions', 'sequences', 'slots'].map(slot) as [
    Int32Array,
    Int32Array,
    Int32Array,
    Int32Array,
  ];
  const [starts, lengths, blockTable] = [slot('starts'), slot('contextLengths'), slot('blockTable')];
  const maxBlocks = blockTable.length / starts.length;
  // models with recurrent layers: every text begins afresh, in a row of its own
  if (layout.slots.has('stateFrom')) {
    slot('stateFrom').fill(-1);
    slot('stateTo').forEach((_, text, rows) => (rows[text] = text));
  }
  const vectors = new Float32Array(maxTexts * hiddenDim);
  let numTexts = 0;
  let numTokens = 0;
  let numBlocks = 0;
  const clear = (): void => {
    numTexts = 0;
    numTokens = 0;
    numBlocks = 0;
  };
  function add(ids: Int32Array): void {
    starts[numTexts] = numTokens;
    lengths[numTexts] = ids.length;
    for (let position = 0; position < ids.length; position++) {
      const at = numTokens + position;
      tokens[at] = ids[position] as number;
      positions[at] = position;
      sequences[at] = numTexts;
      slots[at] = numBlocks * embeddingBlockSize + position;
    }
    const numOwn = Math.ceil(ids.length / embeddingBlockSize);
    for (let block = 0; block < numOwn; block++) blockTable[numTexts * maxBlocks + block] = numBlocks + block;
    numBlocks += numOwn;
    numTokens += ids.length;
    numTexts++;
  }
  return {
    hasRoom: (count) => numTexts < maxTexts && numTokens + count <= maxTokens,
    get numTexts() {
      return numTexts;
    },
    get numTokens() {
      return numTokens;
    },
    add,
    async run(signal) {
      const count = numTexts;
      if (numTokens < minStepTokens) add(new Int32Array(minStepTokens - numTokens));
      scalars.bind('T', numTokens);
      scalars.bind('B', numTexts);
      clear();
      await executable.run(scalars.words, signal === undefined ? {} : { signal });
      const result = vectors.subarray(0, count * hiddenDim);
      await executable.read('embeddings', result);
      return result;
    },
    clear,
  };
}
