import { cacheDTypes } from '@winnow/ops';
import { dtypeInfo, type DType, type Rng } from '@winnow/tensor';
import type { CaseTensor, KernelCase } from '../kernel-case.js';
import { rowOf } from '../setups/sparse-setup.js';
import { close, ints, numbersOf, randomTensor } from '../values.js';

export interface SummaryShape {
  readonly name: string;
  readonly numBlocks: number;
  readonly numKvHeads: number;
  readonly blockSize: number;
  readonly numParts: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly keyDType: DType;
  readonly valueDType: DType;
  /** Slots of the step's tokens; -1 stores nothing. */
  readonly slots: readonly number[];
  /** Count of part `block * numParts + part` before the step; default 0. */
  readonly counts?: Readonly<Record<number, number>>;
}

/** A part of a block that the step touches, with the slots that its summary covers afterwards. */
export interface TouchedPart {
  /** `block * numParts + part`. */
  readonly index: number;
  /** Number of slots, and of those that were not in the summary before. */
  readonly count: number;
  readonly known: number;
}

export function randomCaches(
  shape: SummaryShape,
  rng: Rng,
): { keys: CaseTensor; values: CaseTensor; slots: CaseTensor } {
  const { numBlocks, numKvHeads, blockSize, headDim, valueDim, keyDType, valueDType, slots } = shape;
  return {
    slots: ints([slots.length], slots, 0),
    keys: randomTensor(rng, keyDType, [numBlocks, numKvHeads, blockSize, headDim]),
    values: randomTensor(rng, valueDType, [numBlocks, numKvHeads, blockSize, valueDim]),
  };
}

/**
 * The effect of a step, part by part. A summary is continued only if it covers exactly the slots before the first new
 * one.
 */
export function touchedParts({ slots, blockSize, numParts, counts = {} }: SummaryShape): TouchedPart[] {
  const partSize = blockSize / numParts;
  const touched = new Map<number, TouchedPart>();
  for (const slot of slots) {
    if (slot < 0) continue;
    const index = Math.floor(slot / partSize);
    const offset = slot % partSize;
    const before = touched.get(index);
    const known = before?.known ?? (counts[index] === offset ? offset : 0);
    touched.set(index, { index, count: offset + 1, known });
  }
  return [...touched.values()];
}

/** Row of slot `offset` of a part in a cache `[C, K, S, dim]`. */
export function storedRow(
  numbers: Float64Array,
  { blockSize, numKvHeads, numParts }: SummaryShape,
  index: number,
  head: number,
  offset: number,
  dim: number,
): Float64Array {
  const block = Math.floor(index / numParts);
  const slot = (index % numParts) * (blockSize / numParts) + offset;
  return rowOf(numbers, (block * numKvHeads + head) * blockSize + slot, dim);
}

export function initialCounts({ numBlocks, numParts, numKvHeads, counts = {} }: SummaryShape): CaseTensor {
  const values = new Int32Array(numBlocks * numParts * numKvHeads);
  for (const [index, count] of Object.entries(counts)) {
    values.fill(count, Number(index) * numKvHeads, (Number(index) + 1) * numKvHeads);
  }
  return ints([numBlocks, numParts, numKvHeads], values);
}

export function finalCounts(shape: SummaryShape, before: CaseTensor): CaseTensor {
  const values = new Int32Array(before.bytes.slice().buffer);
  for (const { index, count } of touchedParts(shape)) {
    values.fill(count, index * shape.numKvHeads, (index + 1) * shape.numKvHeads);
  }
  return ints(before.shape, values);
}

/**
 * Means whose known part is the content of the tensor: then `mean = (known * old + sum of new) / count`. A difference,
 * a quotient and a sum round for every token taken in, each at most as large as twice the largest number, and nothing
 * amplifies them.
 */
function meanCase(shape: SummaryShape): KernelCase {
  return {
    op: 'block-mean-append',
    name: shape.name,
    dtypes: { keys: shape.keyDType, values: shape.valueDType },
    attributes: {},
    create(rng, arithmetic) {
      const caches = randomCaches(shape, rng);
      const { numBlocks, numParts, numKvHeads, headDim, valueDim } = shape;
      const counts = initialCounts(shape);
      const meansOf = (cache: CaseTensor, dim: number) => {
        const before = randomTensor(rng, 'f32', [numBlocks, numParts, numKvHeads, dim]);
        const rows = numbersOf(cache);
        const values = numbersOf(before);
        const bounds = new Float64Array(values.length);
        for (const { index, count, known } of touchedParts(shape)) {
          for (let head = 0; head < numKvHeads; head++) {
            const first = (index * numKvHeads + head) * dim;
            for (let i = 0; i < dim; i++) {
              let sum = known * values[first + i];
              let largest = known === 0 ? 0 : Math.abs(values[first + i]);
              for (let offset = known; offset < count; offset++) {
                const x = storedRow(rows, shape, index, head, offset, dim)[i];
                sum += x;
                largest = Math.max(largest, Math.abs(x));
              }
              values[first + i] = sum / count;
              bounds[first + i] = (count - known) * 7 * arithmetic.unit * largest + arithmetic.tiny;
            }
          }
        }
        return { before, after: close(values.length, (index) => [values[index], bounds[index]]) };
      };
      const keyMeans = meansOf(caches.keys, headDim);
      const valueMeans = meansOf(caches.values, valueDim);
      return {
        inputs: caches,
        updated: { counts, keyMeans: keyMeans.before, valueMeans: valueMeans.before },
        expected: {
          counts: { kind: 'bytes', bytes: finalCounts(shape, counts).bytes },
          keyMeans: keyMeans.after,
          valueMeans: valueMeans.after,
        },
      };
    },
  };
}

const base: Omit<SummaryShape, 'name'> = {
  numBlocks: 4,
  numKvHeads: 2,
  blockSize: 8,
  numParts: 1,
  headDim: 16,
  valueDim: 16,
  keyDType: 'f32',
  valueDType: 'f32',
  slots: [8],
};

function shapeOf(name: string, changes: Partial<SummaryShape>): SummaryShape {
  return { ...base, ...changes, name };
}

function range(begin: number, end: number): number[] {
  return Array.from({ length: end - begin }, (_, i) => begin + i);
}

export const summaryShapes: readonly SummaryShape[] = [
  shapeOf('no token', { slots: [] }),
  shapeOf('tokens without a slot', { slots: [-1, -1] }),
  shapeOf('first token of a block', { slots: [8], counts: { 1: 8 } }),
  shapeOf('next token', { slots: [11], counts: { 1: 3 } }),
  shapeOf('token after a truncation', { slots: [11], counts: { 1: 7 } }),
  shapeOf('token after unreported ones', { slots: [14], counts: { 1: 2 } }),
  shapeOf('token that makes a block full', { slots: [31], counts: { 3: 7 } }),
  shapeOf('a block at once', { slots: range(16, 24) }),
  shapeOf('end of one block, two more', {
    slots: [...range(5, 8), ...range(24, 32), ...range(8, 14)],
    counts: { 0: 5 },
  }),
  shapeOf('two sequences', { slots: [9, 10, -1, 29], counts: { 1: 1, 3: 2 } }),
  ...[2, 4, 8].map((numParts) =>
    shapeOf(`${numParts} parts`, { numParts, slots: [...range(3, 8), 17, 18], counts: { 0: 3, [2 * numParts]: 1 } }),
  ),
  shapeOf('blocks of 1', { blockSize: 1, slots: [3, 1] }),
  shapeOf('blocks of 64', { blockSize: 64, slots: range(70, 128), counts: { 1: 6 } }),
  ...[
    [1, 1],
    [3, 7],
    [33, 80],
    [128, 128],
  ].map(([headDim, valueDim]) =>
    shapeOf(`heads of ${headDim} / ${valueDim}`, { headDim, valueDim, slots: range(2, 13), counts: { 0: 2 } }),
  ),
  ...[1, 3].map((numKvHeads) => shapeOf(`${numKvHeads} heads`, { numKvHeads, slots: range(2, 13) })),
  ...cacheDTypes.map((dtype) => {
    const dim = dtypeInfo(dtype).blockSize === 1 ? 20 : 64;
    return shapeOf(`${dtype} cache`, {
      ...{ keyDType: dtype, valueDType: dtype, headDim: dim, valueDim: dim, slots: range(4, 11), counts: { 0: 4 } },
    });
  }),
  shapeOf('f16 keys, q8_0 values', { keyDType: 'f16', valueDType: 'q8_0', valueDim: 32, slots: range(4, 11) }),
];

export const blockMeanAppendCases: readonly KernelCase[] = summaryShapes.map(meanCase);
