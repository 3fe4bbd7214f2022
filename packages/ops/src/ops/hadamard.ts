import { ShapeError } from '@winnow/tensor';
import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Rotation of rows by a Hadamard matrix: `y = x R`, in blocks of `P` values, the largest power of two that divides `H`;
 * `R` is Sylvester's matrix over `sqrt(P)`, orthonormal and its own inverse. Rotating both queries and keys preserves
 * their dot products, but spreads outlier channels over all channels, so that 4-bit keys lose less (idea:
 * arXiv:2404.00456 §4).
 *
 * Shapes: x and y `[..., H]` f32, `H` even; y may alias x.
 * Numerics: sums in f64, rounded once.
 * Cost: `log2 P` additions per value.
 */
export const hadamard: OpSpec = {
  name: 'hadamard',
  inputs: { x: { dtypes: f32Only, shape: '... H' } },
  outputs: { y: { dtypes: f32Only, shape: '... H', mayAlias: 'x' } },
  axes: { H: 'dim' },
  attributes: {},
  fixedAxes: ['H'],
  partition: 'tokens',
  check({ x }) {
    const dim = Number(x[x.length - 1]);
    if (hadamardSize(dim) >= 2) return;
    throw new ShapeError({ op: 'hadamard', rule: 'row', expected: 'an even size', actual: String(dim) });
  },
  bindReference({ inputs: { x }, outputs: { y } }) {
    const piece = hadamardSize(x.shape[x.shape.length - 1]);
    const factor = 1 / Math.sqrt(piece);
    const row = new Float64Array(piece);
    return () => {
      const numValues = x.shape.reduce((product, dim) => product * dim, 1);
      for (let begin = 0; begin < numValues; begin += piece) {
        for (let i = 0; i < piece; i++) row[i] = x.data[begin + i];
        for (let half = 1; half < piece; half *= 2) {
          for (let i = 0; i < piece; i++) {
            if ((i & half) !== 0) continue;
            const [a, b] = [row[i], row[i + half]];
            row[i] = a + b;
            row[i + half] = a - b;
          }
        }
        for (let i = 0; i < piece; i++) y.data[begin + i] = row[i] * factor;
      }
    };
  },
  flops({ x }) {
    const numValues = x.reduce((product, dim) => product * dim, 1);
    return numValues * (1 + Math.log2(hadamardSize(x[x.length - 1])));
  },
};

/** The block size of the rotation of `dim` values: the largest power of two that divides `dim`. */
export function hadamardSize(dim: number): number {
  return dim & -dim;
}
