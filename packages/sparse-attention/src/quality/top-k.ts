import { selectTopK } from '@winnow/ops';

/**
 * Writes the indices of the `k` largest of `scores` to `out` in ascending order and returns their number. Ties go to
 * the lower index; NaN counts as -Infinity.
 */
export function largestIndices(scores: Float64Array, k: number, out: Int32Array): number {
  const count = Math.max(0, Math.min(k, scores.length));
  const best = out.subarray(0, count);
  const values = scores.map((score) => (Number.isNaN(score) ? -Infinity : score));
  selectTopK(values, 0, values.length, count, best, values);
  best.sort();
  return count;
}
