/**
 * Rotation by a Hadamard matrix: it spreads outlier channels over all channels of a head, so that a 4-bit block of keys loses
 * less, and `(R q) . (R k) = q . k` because the matrix is orthogonal. Idea: arXiv:2404.00456 §4; the fast transform is
 * Sylvester's recursion, `n log2 n` additions. Not for keys that are compared channel by channel with unrotated queries.
 */
import { ArgumentError } from '@winnow/tensor';

/** Rows of `dim` values are rotated in pieces of this many: the largest power of two that divides `dim`. */
export function hadamardSize(dim: number): number {
  return dim & -dim;
}

/**
 * Rotates rows of `dim` values in place, each piece by the orthonormal Hadamard matrix. It is its own inverse.
 * @throws {ArgumentError} when `dim` is odd: then there is nothing to spread over
 */
export function rotateRows(values: Float32Array, dim: number, begin = 0, end: number = values.length): void {
  const size = hadamardSize(dim);
  if (size < 2)
    throw new ArgumentError({ argument: 'headDim', expected: 'an even size for rotation', actual: String(dim) });
  const factor = 1 / Math.sqrt(size);
  for (let piece = begin; piece < end; piece += size) {
    for (let half = 1; half < size; half *= 2) {
      for (let first = piece; first < piece + size; first += 2 * half) {
        for (let i = first; i < first + half; i++) {
          const a = values[i];
          const b = values[i + half];
          values[i] = a + b;
          values[i + half] = a - b;
        }
      }
    }
    for (let i = piece; i < piece + size; i++) values[i] *= factor;
  }
}
