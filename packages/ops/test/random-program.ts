/** Random valid programs and their memory, for property tests of the builder, validator and encoding. */
import { createRng, type Rng } from '@winnow/tensor';
import { ProgramBuilder, type ProgramTensor } from '../src/program/program-builder.js';
import type { Program } from '../src/program/program.js';
import { createScalarBlock, type ScalarBlock } from '../src/program/scalars.js';

export const width = 8;
export const capacity = 6;
const blockSize = 4;
const numBlocks = 5;

/**
 * A program over rows of `width` values with in-place ops, reshapes, row ranges, a cache and several segments.
 * @param isFusible whether it has many fusible patterns
 */
export function randomProgram(seed: number, numOps: number, isFusible = false): Program {
  const rng = createRng(seed);
  const b = new ProgramBuilder({ T: capacity });
  const tokens = b.scalar('tokens', ['T']);
  const positions = b.scalar('positions', ['T']);
  const sequences = b.scalar('sequences', ['T']);
  const slots = b.scalar('slots', ['T']);
  const blockTable = b.scalar('blockTable', [2, 2]);
  const contextLengths = b.scalar('contextLengths', [2]);
  const weight = b.external('weight', 'weights', 'f32', [width]);
  const matrix = b.external('matrix', 'weights', 'f16', [2 * width, width]);
  const frequencies = b.external('frequencies', 'weights', 'f32', [2]);
  const keys = b.external('keys', 'kv', 'f32', [numBlocks, 1, blockSize, 4]);
  const values = b.external('values', 'kv', 'f16', [numBlocks, 1, blockSize, 4]);
  const slotPositions = b.external('slotPositions', 'kv', 'i32', [numBlocks, blockSize]);
  const cache = { keys, values, slotPositions, blockTable, contextLengths };
  const table = b.external('table', 'weights', 'q8_0', [11, 32]);
  const wide = b.activation('embedding-lookup', { table, tokens });
  const narrow = b.activation('matmul', { x: wide, weight: b.external('down', 'weights', 'f32', [width, 32]) });
  let rows: ProgramTensor[] = [narrow]; // all [T, width]
  const pick = (): ProgramTensor => rows[rng.nextInt(rows.length)];
  const heads = (x: ProgramTensor): ProgramTensor => b.reshape(x, ['T', 2, 4]);
  const flat = (x: ProgramTensor): ProgramTensor => b.reshape(x, ['T', width]);
  b.append('position-append', { slots, positions }, {}, { slotPositions });
  const steps: (() => ProgramTensor)[] = [
    () => b.activation('rms-norm', { x: pick(), weight }, { eps: 1e-5 }),
    () => b.activation('layer-norm', { x: pick(), weight }, { eps: 1e-5 }),
    () => b.activation('add', { a: pick(), b: pick() }),
    () => b.activation('activation', { x: pick() }, { kind: 'gelu-erf' }),
    () => b.activation('glu', { gate: pick(), up: pick() }, { kind: 'silu' }),
    () => b.activation('soft-cap', { x: pick() }, { cap: 30 }),
    () => b.activation('softmax', { x: pick() }),
    () => b.activation('matmul', { x: pick(), weight: b.rows(matrix, 3, 3 + width) }),
    () =>
      flat(b.activation('rope', { x: heads(pick()), positions, frequencies }, { layout: 'neighbors', amplitude: 1.1 })),
    () => {
      const k = b.reshape(b.activation('matmul', { x: pick(), weight: b.rows(matrix, 0, 4) }), ['T', 1, 4]);
      b.append('kv-append', { k, v: k, slots }, {}, { keys, values });
      return flat(b.activation('attention', { q: heads(pick()), positions, sequences, ...cache }, { scale: 0.3 }));
    },
    () => {
      const attributes = { scale: 0.3, causal: false, window: 4, numParts: 2 };
      const parts = b.append('attention-partial', { q: heads(pick()), positions, sequences, ...cache }, attributes);
      const { l, o } = b.append('attention-merge', parts);
      return flat(b.activation('attention-finish', { l, o }));
    },
  ];
  if (isFusible) steps.push(...fusibleSteps(b, { pick, matrix, weight }));
  for (let i = 0; i < numOps; i++) {
    rows.push(steps[rng.nextInt(steps.length)]());
    if (rng.nextInt(3) === 0) rows = rows.slice(-1 - rng.nextInt(3));
    if (rng.nextInt(6) === 0) b.boundary(`stop ${i}`);
  }
  b.output('rows', pick());
  const { values: best, indices } = b.append('top-k', { x: pick() }, { k: 3 });
  b.output('best', best);
  b.output('indices', indices);
  return b.build();
}

/** Norms followed by matmuls, gated products, and matmuls of shared rows. */
function fusibleSteps(
  b: ProgramBuilder,
  {
    pick,
    matrix,
    weight,
  }: Readonly<Record<'matrix' | 'weight', ProgramTensor>> & { readonly pick: () => ProgramTensor },
): (() => ProgramTensor)[] {
  const multiply = (x: ProgramTensor, begin: number): ProgramTensor =>
    b.activation('matmul', { x, weight: b.rows(matrix, begin, begin + width) });
  const gated = (gate: ProgramTensor, up: ProgramTensor): ProgramTensor =>
    b.activation('glu', { gate, up }, { kind: 'silu' });
  return [
    () => multiply(b.activation('rms-norm', { x: pick(), weight }, { eps: 1e-5 }), 2),
    () => {
      const x = pick();
      return gated(multiply(x, 1), multiply(x, 5));
    },
    () => {
      const x = b.activation('rms-norm', { x: pick(), weight }, { eps: 1e-6 });
      const rotated = b.activation('scale', { x: multiply(x, 0) }, { factor: 0.5 });
      return b.activation('add', { a: rotated, b: gated(multiply(x, 4), multiply(pick(), 4)) });
    },
    () => multiply(pick(), 6),
  ];
}

/** Contents of every buffer except the scalars and the arena, by name. */
export function randomMemory(program: Program, rng: Rng): Map<string, Uint8Array> {
  const memory = new Map<string, Uint8Array>();
  for (const { name, usage, sizeBytes } of program.buffers) {
    if (usage !== 'weights' && usage !== 'kv') continue;
    const bytes = new Uint8Array(sizeBytes);
    if (name === 'slotPositions') new Int32Array(bytes.buffer).fill(-1);
    else if (name === 'table' || name === 'matrix') {
      // small positive halves: q8_0 scales and f16 weights are both finite whatever the other bytes are
      for (let i = 0; i < sizeBytes; i++) bytes[i] = rng.nextInt(256);
      const step = name === 'table' ? 34 : 2;
      for (let i = 0; i < sizeBytes; i += step) bytes[i + 1] = 0x20 + rng.nextInt(12);
    } else if (usage === 'weights') {
      const values = new Float32Array(bytes.buffer);
      for (let i = 0; i < values.length; i++) values[i] = rng.nextGaussian() * 0.5;
    }
    memory.set(name, bytes);
  }
  return memory;
}

/** Scalars of a step with `numTokens` tokens of two sequences. */
export function randomScalars(program: Program, numTokens: number, rng: Rng): ScalarBlock {
  const block = createScalarBlock(program.scalars, program.symbols);
  block.bind('T', numTokens);
  for (let t = 0; t < numTokens; t++) {
    const sequence = t % 2;
    const position = Math.floor(t / 2);
    block.slot('tokens')[t] = rng.nextInt(11);
    block.slot('positions')[t] = position;
    block.slot('sequences')[t] = sequence;
    block.slot('slots')[t] = (sequence === 0 ? 3 : 1) * blockSize + position;
  }
  block.slot('blockTable').set([3, 0, 1, 4]);
  block.slot('contextLengths').set([Math.ceil(numTokens / 2), Math.floor(numTokens / 2)]);
  return block;
}
