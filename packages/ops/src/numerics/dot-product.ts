/** Dot product of `length` elements of two vectors from the given offsets, in f64. */
export function dotProduct(
  a: ArrayLike<number>,
  aBegin: number,
  b: ArrayLike<number>,
  bBegin: number,
  length: number,
): number {
  let sum = 0;
  for (let i = 0; i < length; i++) sum += a[aBegin + i] * b[bBegin + i];
  return sum;
}
