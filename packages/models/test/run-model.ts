/** Runs an in-memory model on the reference backend. */
import type { StoredTensor } from '@winnow/bytes';
import { createReferenceBackend, createScalarBlock } from '@winnow/ops';
import {
  describeModel,
  Fields,
  loadWeight,
  rotaryLengthsOf,
  rotaryRowsSlot,
  slotPositionsName,
  type ModelFile,
} from '../src/index.js';
import type { TruthWeight } from './truth.js';

/** Random weights of the given shapes, by their Hugging Face names. */
export function randomWeights(shapes: Readonly<Record<string, readonly number[]>>): Map<string, TruthWeight> {
  let state = 12345;
  const random = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
  return new Map(
    Object.entries(shapes).map(([name, shape]) => {
      const isVector = shape.length === 1;
      const spread = isVector ? 1 : 4 / Math.sqrt(shape[1] as number);
      const length = shape.reduce((product, dim) => product * dim, 1);
      return [name, { shape, values: Float32Array.from({ length }, () => random() * spread + (isVector ? 0.3 : 0)) }];
    }),
  );
}

export function modelFile(
  format: ModelFile['format'],
  settings: object,
  weights: ReadonlyMap<string, TruthWeight>,
): ModelFile {
  const tensors = new Map<string, StoredTensor>();
  for (const [name, { shape, values }] of weights) {
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    const read: StoredTensor['read'] = async (target, { byteOffset = 0 } = {}) =>
      target.set(bytes.subarray(byteOffset, byteOffset + target.length));
    tensors.set(name, { name, dtype: 'f32', shape, sizeBytes: bytes.length, read });
  }
  const store = { name: 'weights', tensors, close: async () => undefined };
  return { format, fields: Fields.ofJson('settings', settings), store };
}

/** Logits after each token, computed in one step. */
export async function runModel(
  file: ModelFile,
  tokens: readonly number[],
  contextSize = 64,
): Promise<readonly Float32Array[]> {
  const description = await describeModel(file);
  const numTokens = tokens.length;
  const blockSize = 16;
  const numBlocks = Math.ceil(numTokens / blockSize);
  const program = description.buildProgram({
    maxTokens: numTokens,
    maxSequences: 1,
    maxOutputRows: numTokens,
    cache: { numBlocks, blockSize, maxBlocksPerSequence: numBlocks, dtype: { keys: 'f32', values: 'f32' } },
    contextSize,
    topK: 1,
  });
  const backend = createReferenceBackend();
  const buffers = new Map();
  for (const { name, usage, sizeBytes } of program.buffers) {
    if (usage !== 'weights' && usage !== 'kv') continue;
    const buffer = backend.allocate({ sizeBytes, usage, label: name });
    const bytes = new Uint8Array(sizeBytes);
    const weight = description.weights.get(name);
    const constant = description.constants.get(name);
    if (weight !== undefined) await loadWeight(weight, bytes);
    else if (constant !== undefined) bytes.set(new Uint8Array(constant.buffer));
    else if (name === slotPositionsName) bytes.fill(0xff);
    await backend.write(buffer, 0, bytes);
    buffers.set(name, buffer);
  }
  const executable = await backend.prepare(program, { buffers });
  const scalars = createScalarBlock(program.scalars, program.symbols);
  for (const symbol of ['T', 'R']) scalars.bind(symbol, numTokens);
  scalars.bind('B', 1);
  scalars.slot('tokens').set(tokens);
  for (const name of ['positions', 'slots', 'outputRows']) scalars.slot(name).set(tokens.map((_, index) => index));
  const { rope } = description.config;
  const lengths = rope && rotaryLengthsOf(rope);
  if (program.scalars.slots.has(rotaryRowsSlot) && lengths !== undefined) {
    const key = lengths.keyOf(numTokens);
    scalars.slot(rotaryRowsSlot).set(tokens.map((_, position) => lengths.rowOf(key, position)));
  }
  scalars.slot('contextLengths')[0] = numTokens;
  scalars.slot('blockTable').set(Array.from({ length: numBlocks }, (_, index) => index));
  await executable.run(scalars.words);
  const { vocabSize } = description.config;
  const logits = new Float32Array(numTokens * vocabSize);
  await executable.read('logits', logits);
  await backend.dispose();
  return tokens.map((_, row) => logits.subarray(row * vocabSize, (row + 1) * vocabSize));
}

/** Largest difference between rows. */
export function worstDifference(actual: readonly Float32Array[], expected: readonly (readonly number[])[]): number {
  let worst = 0;
  expected.forEach((row, at) =>
    row.forEach((value, i) => {
      const difference = Math.abs(value - (actual[at]?.[i] as number));
      if (!(difference <= worst)) worst = difference;
    }),
  );
  return worst;
}
