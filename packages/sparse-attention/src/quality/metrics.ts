/**
 * Attention-level quality: how far an output is from dense, and how much of the exact softmax the visited keys hold.
 */
import { dotProduct, softmaxRow } from '@winnow/ops';
import { ShapeError, type Tensor3 } from '@winnow/tensor';

/** A distribution over rows. */
export interface Summary {
  readonly mean: number;
  readonly p99: number;
  readonly max: number;
}

/** Mean, 99th percentile (nearest rank) and maximum; zeros for an empty input. */
export function summarize(values: ArrayLike<number>): Summary {
  const sorted = Float64Array.from(values).sort();
  if (sorted.length === 0) return { mean: 0, p99: 0, max: 0 };
  const mean = sorted.reduce((a, b) => a + b, 0) / sorted.length;
  return { mean, p99: sorted[Math.ceil(0.99 * sorted.length) - 1], max: sorted[sorted.length - 1] };
}

/**
 * `|actual - expected| / |expected|` (2-norms) of each row of one head; 0 where both are zero, Infinity where only
 * `expected` is zero.
 * @throws {ShapeError} for tensors of different shapes
 */
export function outputErrors(expected: Tensor3, actual: Tensor3, head: number): Float64Array {
  if (expected.shape.join() !== actual.shape.join()) {
    const fields = { op: 'outputErrors', rule: 'shapes' };
    throw new ShapeError({
      ...fields,
      expected: `[${expected.shape.join(', ')}]`,
      actual: `[${actual.shape.join(', ')}]`,
    });
  }
  return Float64Array.from({ length: expected.seqLen }, (_, i) => {
    const a = expected.row(i, head);
    const b = actual.row(i, head);
    let norm = 0;
    let error = 0;
    for (let d = 0; d < a.length; d++) {
      norm += a[d] * a[d];
      error += (a[d] - b[d]) ** 2;
    }
    return error === 0 ? 0 : Math.sqrt(error / norm);
  });
}

/** Exact softmax weights of a query over keys `[0, numKeys)` of one KV head, in f64. */
export function exactWeights(
  query: Float32Array,
  k: Tensor3,
  kvHead: number,
  numKeys: number,
  scale: number = 1 / Math.sqrt(k.headDim),
): Float64Array {
  const weights = new Float64Array(numKeys);
  for (let j = 0; j < numKeys; j++) {
    const begin = (j * k.numHeads + kvHead) * k.headDim;
    weights[j] = scale * dotProduct(query, 0, k.data, begin, k.headDim);
  }
  softmaxRow(weights, 0, numKeys, weights);
  return weights;
}

/** Sum of the weights of the first `count` of `positions`. */
export function massCaptured(
  weights: Float64Array,
  positions: ArrayLike<number>,
  count: number = positions.length,
): number {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += weights[positions[i]];
  return Math.min(1, sum);
}

/** Share of `best` that is among `positions`; 1 when `best` is empty. */
export function recall(best: ArrayLike<number>, positions: Iterable<number>): number {
  if (best.length === 0) return 1;
  const visited = new Set(positions);
  let found = 0;
  for (let i = 0; i < best.length; i++) if (visited.has(best[i])) found += 1;
  return found / best.length;
}

/** |A n B| / |A u B| of two ascending lists; 1 for two empty ones. */
export function jaccard(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let common = 0;
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) common += 1;
    if (a[i] <= b[j]) i += 1;
    else j += 1;
  }
  const union = a.length + b.length - common;
  return union === 0 ? 1 : common / union;
}
