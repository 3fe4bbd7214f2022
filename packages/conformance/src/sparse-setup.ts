/** What the cases of sparse attention have in common: the truth of chosen keys, summaries of blocks, clear choices. */
import type { Rng } from '@winnow/tensor';
import { attentionSums, type AttentionProblem, type AttentionSetup, type SeenKey } from './attention-setup.js';
import type { Arithmetic } from './arithmetic.js';
import type { CaseTensor, Expected } from './kernel-case.js';
import { close, gaussian, ints, integersOf, numbersOf } from './values.js';

/** The output of softmax attention `[T, N, D]` over the keys of each row: both sums' errors, and the rounding of the quotient. */
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

/** Every (query, head) pair in the order of rows. */
export function rowsOf({ queries, numHeads }: AttentionSetup): { readonly query: number; readonly head: number }[] {
  return queries.flatMap((_, query) => Array.from({ length: numHeads }, (_unused, head) => ({ query, head })));
}

/** Integers as an exact output. */
export function integers(values: ArrayLike<number>): Expected {
  return { kind: 'integers', values: Int32Array.from(values) };
}

/** Where the summary of part `block` of a sequence lies: `(cache block * G + part) * K + head`. */
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

/** Means of blocks with any content: an op takes them as they are. Counts are right for the blocks of the sequences. */
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
 * Indices of the `count` largest scores, ascending; lower indices win ties of exactly equal ones.
 * @throws when others are so close that errors of both could choose differently: such data makes no case
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
