/** Runs steps of a model's program without sessions: several sequences at once, any state rows. */
import { describeModel, loadWeight, slotPositionsName, type ModelDescription } from '@winnow/models';
import {
  createScalarBlock,
  type Backend,
  type BufferHandle,
  type Executable,
  type Program,
  type ScalarBlock,
} from '@winnow/ops';
import { openPath } from '../../src/host/open-path.node.js';

/** The tokens of one sequence in a step. */
export interface Part {
  readonly tokens: readonly number[];
  /** Position of the first token. */
  readonly begin: number;
  /** First of the sequence's consecutive cache blocks. */
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

/** Allocates weights and caches. States start as NaN: results must not depend on their old contents. */
async function allocateBuffers(
  program: Program,
  { weights, constants }: ModelDescription,
  backend: Backend,
): Promise<Map<string, BufferHandle>> {
  const buffers = new Map<string, BufferHandle>();
  for (const { name, usage, sizeBytes } of program.buffers) {
    if (usage !== 'weights' && usage !== 'kv') continue;
    const buffer = backend.allocate({ sizeBytes, usage, label: name });
    buffers.set(name, buffer);
    const bytes = new Uint8Array(sizeBytes).fill(name === slotPositionsName || usage === 'kv' ? 0xff : 0);
    const [weight, constant] = [weights.get(name), constants.get(name)];
    if (weight !== undefined) await loadWeight(weight, bytes);
    if (constant !== undefined) bytes.set(new Uint8Array(constant.buffer));
    await backend.write(buffer, 0, bytes);
  }
  return buffers;
}

/** Fills the scalar block of a step. */
function bindParts(block: ScalarBlock, parts: readonly Part[], hasStates: boolean): void {
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
}

/** Log-probabilities after each token of each part. */
async function readParts(executable: Executable, parts: readonly Part[], vocabSize: number): Promise<Float32Array[][]> {
  const numTokens = parts.reduce((sum, { tokens }) => sum + tokens.length, 0);
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
}

export async function openSteps(
  path: string,
  backend: Backend,
  rewrite: (program: Program) => Program = (program) => program,
): Promise<StepRun> {
  const opened = await openPath(path, {});
  const description = await describeModel(await opened.openFile());
  const built = description.buildProgram({
    maxTokens,
    maxSequences: 2,
    maxOutputRows: maxTokens,
    numStates: 4,
    cache: {
      numBlocks: 2 * maxBlocks,
      blockSize,
      maxBlocksPerSequence: maxBlocks,
      dtype: { keys: 'f32', values: 'f32' },
    },
    topK: 1,
  });
  const program = rewrite(built);
  const buffers = await allocateBuffers(program, description, backend);
  await opened.close();
  const executable = await backend.prepare(program, { buffers, onUnsupported: 'error' });
  const block = createScalarBlock(program.scalars, program.symbols);
  const hasStates = program.scalars.slots.has('stateFrom');
  return {
    hasStates,
    async run(parts) {
      bindParts(block, parts, hasStates);
      await executable.run(block.words);
      return readParts(executable, parts, description.config.vocabSize);
    },
    async close() {
      await executable.dispose();
      for (const buffer of buffers.values()) backend.free(buffer);
    },
  };
}
