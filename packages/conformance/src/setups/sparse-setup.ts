/**
 * Shared by the cases of sparse attention: expected results for selected keys, summaries of blocks, unambiguous
 * selections.
 */
import type { Rng } from '@winnow/tensor';
import { underflow, type Arithmetic } from '../arithmetic.js';
import type { CaseTensor, Expected } from '../kernel-case.js';
import { close, gaussian, ints, integersOf, numbersOf } from '../values.js';
import { attentionSums, type AttentionProblem, type AttentionSetup, type SeenKey } from './attention-setup.js';

/**
 * The output of softmax attention `[T, N, D]` over the keys of each row: both sums' errors, and the rounding of the
 * quotient.
 */
export function attended(
  rows: readonly (readonly SeenKey[])[],
  valueDim: number,
  arithmetic: Arithmetic,
): Extract<Expected, { kind: 'close' }> {
  const sums = rows.map((keys) => (keys.length === 0 ? undefined : attentionSums(keys, valueDim, arithmetic)));
  return close(rows.length * valueDim, (index) => {
    const row = sums[Math.floor(index / valueDim)];
    if (row === undefined) return [0, 0];
    const value = row.weighted[index % valueDim] / row.sum;
    const error = row.weightedErrors[index % valueDim] / row.sum + Math.abs(value) * row.sumError;
    return [value, error + 3 * arithmetic.unit * Math.abs(value) + arithmetic.tiny];
  }) as Extract<Expected, { kind: 'close' }>;
}

/**
 * The masses `[T, K, M, S]` of visited keys. A probability is the quotient of a weight and the sum of the weights,
 * whose errors are those of `attentionSums`; kernels that keep two sums have the weight from two powers, and the merged
 * sum from two more. A mass is a sum of probabilities, one rounding for each.
 * @param rows the keys of each (query, head) pair; those of no slot are part of the sum only
 */
export function masses(
  { inputs: { blockTable } }: AttentionProblem,
  { queries, numHeads, numKvHeads, blockSize }: AttentionSetup,
  rows: readonly (readonly SeenKey[])[],
  arithmetic: Arithmetic,
): Expected {
  const { unit, elementary, tiny } = arithmetic;
  const numSlots = blockTable.shape[1] * blockSize;
  const groupSize = numHeads / numKvHeads;
  const values = new Float64Array(queries.length * numKvHeads * numSlots);
  const errors = new Float64Array(values.length);
  for (const [row, keys] of rows.entries()) {
    if (keys.length === 0) continue;
    const { max, sum, sumError } = attentionSums(keys, 0, arithmetic);
    const begin = Math.floor(row / groupSize) * numSlots;
    for (const { slot, logit, logitError } of keys) {
      if (slot < 0) continue;
      const weight = Math.exp(logit - max);
      const weightError = weight * (logitError + 2 * elementary + 4 * unit + 2 * unit * (max - logit)) + underflow;
      const mass = weight / sum;
      values[begin + slot] += mass;
      errors[begin + slot] += weightError / sum + mass * (sumError + 2 * elementary + 6 * unit) + tiny;
    }
  }
  return close(values.length, (i) => [values[i], errors[i] + groupSize * unit * values[i]]);
}

/** Every (query, head) pair in the order of rows. */
export function rowsOf({ queries, numHeads }: AttentionSetup): { readonly query: number; readonly head: number }[] {
  return queries.flatMap((_, query) => Array.from({ length: numHeads }, (_unused, head) => ({ query, head })));
}

/** Integers as an exact output. */
export function integers(values: ArrayLike<number>): Expected {
  return { kind: 'integers', values: Int32Array.from(values) };
}

/** The index of the summary of part `block` of a sequence: `(cache block * G + part) * K + head`. */
export function summaryIndex(
  { inputs }: AttentionProblem,
  numParts: number,
  sequence: number,
  block: number,
  kvHead: number,
): number {
  const { blockTable, keys } = inputs;
  const cacheBlock = integersOf(blockTable)[sequence * blockTable.shape[1] + Math.floor(block / numParts)];
  return (cacheBlock * numParts + (block % numParts)) * keys.shape[1] + kvHead;
}

/** Arbitrary means of blocks: an op uses them unchecked. Counts are right for the blocks of the sequences. */
export function randomMeans(
  { inputs }: AttentionProblem,
  { contextLengths }: AttentionSetup,
  numParts: number,
  rng: Rng,
): { readonly keyMeans: CaseTensor; readonly valueMeans: CaseTensor; readonly meanCounts: CaseTensor } {
  const { keys, values, blockTable } = inputs;
  const [numBlocks, numKvHeads, blockSize, headDim] = keys.shape;
  const partSize = blockSize / numParts;
  const counts = new Int32Array(numBlocks * numParts * numKvHeads).fill(-7);
  for (const [sequence, length] of contextLengths.entries()) {
    for (let begin = 0, block = 0; begin < length; begin += partSize, block++) {
      const cacheBlock = integersOf(blockTable)[sequence * blockTable.shape[1] + Math.floor(block / numParts)];
      const first = (cacheBlock * numParts + (block % numParts)) * numKvHeads;
      counts.fill(Math.min(partSize, length - begin), first, first + numKvHeads);
    }
  }
  return {
    keyMeans: gaussian(rng, [numBlocks, numParts, numKvHeads, headDim]),
    valueMeans: gaussian(rng, [numBlocks, numParts, numKvHeads, values.shape[3]]),
    meanCounts: ints([numBlocks, numParts, numKvHeads], counts),
  };
}

/** Row `index` of a tensor whose last axis is `dim`. */
export function rowOf(numbers: Float64Array, index: number, dim: number): Float64Array {
  return numbers.subarray(index * dim, (index + 1) * dim);
}

/**
 * Indices of the `count` largest scores, ascending; exact ties go to lower indices.
 * @throws when scores are so close that their errors could change the selection: such data is unusable
 */
export function clearlyLargest(scores: readonly number[], count: number, errors: readonly number[]): number[] {
  const order = scores
    .map((_, index) => index)
    .sort((a, b) => (scores[a] === scores[b] ? a - b : scores[b] - scores[a]));
  const chosen = order.slice(0, count);
  const [last, next] = [order[count - 1], order[count]];
  if (last !== undefined && next !== undefined && scores[last] !== scores[next]) {
    const gap = scores[last] - scores[next];
    const error = errors[last] + errors[next];
    if (gap <= error) throw new Error(`scores ${scores[last]} and ${scores[next]} are no clear choice, error ${error}`);
  }
  return chosen.sort((a, b) => a - b);
}

/** The numbers of a tensor of a problem. */
export function inputNumbers({ inputs }: AttentionProblem, name: string): Float64Array {
  return numbersOf(inputs[name]);
}
