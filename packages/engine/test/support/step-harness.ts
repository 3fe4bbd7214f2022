/** Runs steps of a model's program by hand: several sequences at once, any rows of states; without sessions. */
import { describeModel, loadWeight, slotPositionsName } from '@winnow/models';
import { createScalarBlock, type Backend, type BufferHandle, type Executable } from '@winnow/ops';
import { openPath } from '../../src/host/open-path.node.js';

/** Tokens of one sequence in a step. */
export interface Part {
  readonly tokens: readonly number[];
  /** Position of the first one. */
  readonly begin: number;
  /** Where the sequence's blocks of the cache begin. */
  readonly firstBlock: number;
  /** Rows of recurrent states. */
  readonly from: number;
  readonly to: number;
}

export interface StepRun {
  /** Log-probabilities after each token of each part. */
  run(parts: readonly Part[]): Promise<Float32Array[][]>;
  readonly hasStates: boolean;
  close(): Promise<void>;
}

const blockSize = 16;
const maxBlocks = 16;
const maxTokens = 64;

export async function openSteps(path: string, backend: Backend): Promise<StepRun> {
  const opened = await openPath(path, {});
  const description = await describeModel(await opened.openFile());
  const program = description.buildProgram({
    maxTokens,
    maxSequences: 2,
    maxOutputRows: maxTokens,
    numStates: 4,
    cache: {
      numBlocks: 2 * maxBlocks,
      blockSize,
      maxBlocksPerSequence: maxBlocks,
      keyDType: 'f32',
      valueDType: 'f32',
    },
    topK: 1,
  });
  const buffers = new Map<string, BufferHandle>();
  for (const { name, usage, sizeBytes } of program.buffers) {
    if (usage !== 'weights' && usage !== 'kv') continue;
    const buffer = backend.allocate({ sizeBytes, usage, label: name });
    buffers.set(name, buffer);
    // states are full of NaN: nothing may depend on what they held
    const bytes = new Uint8Array(sizeBytes).fill(name === slotPositionsName || usage === 'kv' ? 0xff : 0);
    const [weight, constant] = [description.weights.get(name), description.constants.get(name)];
    if (weight !== undefined) await loadWeight(weight, bytes);
    if (constant !== undefined) bytes.set(new Uint8Array(constant.buffer));
    await backend.write(buffer, 0, bytes);
  }
  await opened.close();
  const executable: Executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
  const { vocabSize } = description.config;
  const block = createScalarBlock(program.scalars, program.symbols);
  const hasStates = program.scalars.slots.has('stateFrom');
  return {
    hasStates,
    async run(parts) {
      const numTokens = parts.reduce((sum, { tokens }) => sum + tokens.length, 0);
      block.bind('T', numTokens);
      block.bind('B', parts.length);
      block.bind('R', numTokens);
      let t = 0;
      for (const [sequence, { tokens, begin, firstBlock, from, to }] of parts.entries()) {
        for (const [i, token] of tokens.entries()) {
          block.slot('tokens')[t] = token;
          block.slot('positions')[t] = begin + i;
          block.slot('sequences')[t] = sequence;
          block.slot('slots')[t] = firstBlock * blockSize + begin + i;
          block.slot('outputRows')[t] = t;
          t++;
        }
        block.slot('contextLengths')[sequence] = begin + tokens.length;
        for (let i = 0; i < maxBlocks; i++) block.slot('blockTable')[sequence * maxBlocks + i] = firstBlock + i;
        if (!hasStates) continue;
        block.slot('stateFrom')[sequence] = from;
        block.slot('stateTo')[sequence] = to;
      }
      await executable.run(block.words);
      const logits = new Float32Array(numTokens * vocabSize);
      const logSumExp = new Float32Array(numTokens);
      await executable.read('logits', logits);
      await executable.read('logSumExp', logSumExp);
      let row = 0;
      return parts.map(({ tokens }) =>
        tokens.map(() => {
          const shift = logSumExp[row] as number;
          const values = logits.slice(row * vocabSize, (row + 1) * vocabSize).map((logit) => logit - shift);
          row++;
          return values;
        }),
      );
    },
    async close() {
      await executable.dispose();
      for (const buffer of buffers.values()) backend.free(buffer);
    },
  };
}
