import { dotProduct } from '@winnow/ops';
import type { Rng } from '@winnow/tensor';

/**
 * Makes the rows of a matrix `[numRows, length]` orthonormal, in place, by the modified Gram-Schmidt method, each row
 * twice (W. Kahan's "twice is enough", in B. Parlett, The Symmetric Eigenvalue Problem, section 6.9). A row that
 * depends on earlier ones is replaced by a random one; rows beyond `length` become 0, since no more can be independent.
 */
export function orthonormalizeRows(matrix: Float32Array, numRows: number, length: number, rng: Rng): void {
  for (let row = 0; row < numRows; row++) {
    const begin = row * length;
    if (row >= length) {
      matrix.fill(0, begin, begin + length);
      continue;
    }
    for (let attempt = 0; ; attempt++) {
      const before = normOf(matrix, begin, length);
      for (let pass = 0; pass < 2; pass++) {
        for (let other = 0; other < row; other++) removeComponent(matrix, begin, other * length, length);
      }
      const after = normOf(matrix, begin, length);
      // what is left of a dependent row is rounding: about length * 2^-24 of it
      if (after > before * 1e-5 && Number.isFinite(after)) {
        for (let i = 0; i < length; i++) matrix[begin + i] /= after;
        break;
      }
      if (attempt === 8) {
        matrix.fill(0, begin, begin + length);
        break;
      }
      for (let i = 0; i < length; i++) matrix[begin + i] = rng.nextGaussian();
    }
  }
}

function normOf(matrix: Float32Array, begin: number, length: number): number {
  return Math.sqrt(dotProduct(matrix, begin, matrix, begin, length));
}

function removeComponent(matrix: Float32Array, row: number, other: number, length: number): void {
  const product = dotProduct(matrix, row, matrix, other, length);
  for (let i = 0; i < length; i++) matrix[row + i] -= product * matrix[other + i];
}
