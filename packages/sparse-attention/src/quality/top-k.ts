/**
 * Writes the indices of the `k` largest of `scores` to `out` in ascending order and returns how many they are. Of equal scores
 * the lower index wins; NaN counts as -Infinity.
 */
export function largestIndices(scores: Float64Array, k: number, out: Int32Array): number {
  const count = Math.min(k, scores.length);
  if (count <= 0) return 0;
  const values = scores.map((score) => (Number.isNaN(score) ? -Infinity : score));
  const threshold = values.toSorted()[scores.length - count];
  let numEqual = count;
  for (const value of values) if (value > threshold) numEqual -= 1;
  let n = 0;
  for (let i = 0; n < count; i++) {
    if (values[i] < threshold || (values[i] === threshold && numEqual-- <= 0)) continue;
    out[n++] = i;
  }
  return n;
}
