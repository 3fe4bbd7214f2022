import type { KernelCase } from '../kernel-case.js';
import { close, finiteSpecials, numbersOf, gaussianWith } from '../values.js';

/** Sums of `log2 P` additions of all values of a piece, then a product with a rounded factor. */
function hadamardCase(shape: readonly number[]): KernelCase {
  const dim = shape[shape.length - 1];
  const piece = dim & -dim;
  return {
    op: 'hadamard',
    name: shape.join(' x '),
    dtypes: {},
    attributes: {},
    create(rng, { unit, tiny }) {
      const x = gaussianWith(rng, shape, finiteSpecials, 0);
      const xs = numbersOf(x);
      const y = close(xs.length, (index) => {
        const begin = index - (index % piece);
        let sum = 0;
        let magnitude = 0;
        for (let i = 0; i < piece; i++) {
          // the sign of an entry is the parity of the bits that row and column share
          let shared = (index - begin) & i;
          let sign = 1;
          for (; shared !== 0; shared &= shared - 1) sign = -sign;
          sum += sign * xs[begin + i];
          magnitude += Math.abs(xs[begin + i]);
        }
        const factor = 1 / Math.sqrt(piece);
        return [sum * factor, (Math.log2(piece) + 3) * unit * magnitude * factor + (piece + 1) * tiny];
      });
      return { inputs: { x }, expected: { y } };
    },
  };
}

export const hadamardCases: readonly KernelCase[] = [
  ...[2, 4, 6, 8, 16, 24, 32, 64, 80, 96, 128, 256].map((dim) => hadamardCase([5, 3, dim])),
  hadamardCase([0, 3, 32]),
  hadamardCase([1, 1, 64]),
  hadamardCase([131, 2, 32]),
];
