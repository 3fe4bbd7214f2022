import { ArgumentError } from '@winnow/tensor';
import { f32Only, i32Only } from './dtypes.js';
import type { OpSpec } from './op-spec.js';

/**
 * Rotary position embedding: rotates pair `i` of every head by the angle `positions[t] * frequencies[i]` and multiplies
 * it by `amplitude`. Other dims are unchanged.
 *
 * Shapes: x and y `[T, N, H]` f32, positions `[T]` i32, frequencies `[F]` f32 with `2 F <= H` (see `ropeFrequencies`).
 * `layout` says which dims form pair `i`: `neighbors` (2i, 2i + 1), `halves` (i, i + F). y may take the memory of x.
 * Numerics: angle, sine and cosine in f64. Source: arXiv:2104.09864 eq. 34; amplitude: arXiv:2309.00071 eq. 15.
 */
export const rope: OpSpec = {
  name: 'rope',
  inputs: {
    x: { dtypes: f32Only, shape: 'T N H' },
    positions: { dtypes: i32Only, shape: 'T' },
    frequencies: { dtypes: f32Only, shape: 'F' },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T N H', mayAlias: 'x' } },
  axes: { T: 'numTokens', N: 'numHeads', H: 'headDim', F: 'numFrequencies' },
  attributes: {
    layout: { kind: 'string', values: ['neighbors', 'halves'] },
    amplitude: { kind: 'number', default: 1 },
  },
  fixedAxes: ['N', 'H', 'F'],
  partition: 'tokens',
  work: '2 * x.numElements',
  check({ x, frequencies }) {
    if (2 * Number(frequencies[0]) > Number(x[2])) {
      throw new ArgumentError({
        argument: 'rope: frequencies',
        expected: `at most ${Number(x[2]) / 2} pairs`,
        actual: String(frequencies[0]),
      });
    }
  },
  bindReference({ inputs: { x, positions, frequencies }, outputs: { y }, attributes }) {
    const xs = x.data as Float32Array;
    const ys = y.data as Float32Array;
    const numPairs = frequencies.shape[0];
    const isNeighbors = attributes['layout'] === 'neighbors';
    const amplitude = attributes['amplitude'] as number;
    const stride = isNeighbors ? 2 : 1;
    const partner = isNeighbors ? 1 : numPairs;
    return () => {
      const [numTokens, numHeads, headDim] = x.shape;
      for (let t = 0; t < numTokens; t++) {
        for (let i = 0; i < numPairs; i++) {
          const angle = positions.data[t] * frequencies.data[i];
          const cos = Math.cos(angle) * amplitude;
          const sin = Math.sin(angle) * amplitude;
          for (let head = 0; head < numHeads; head++) {
            const a = (t * numHeads + head) * headDim + i * stride;
            const xa = xs[a];
            const xb = xs[a + partner];
            ys[a] = xa * cos - xb * sin;
            ys[a + partner] = xa * sin + xb * cos;
          }
        }
        if (xs === ys || 2 * numPairs === headDim) continue;
        for (let head = 0; head < numHeads; head++) {
          const begin = (t * numHeads + head) * headDim;
          for (let i = 2 * numPairs; i < headDim; i++) ys[begin + i] = xs[begin + i];
        }
      }
    };
  },
  flops: ({ x, frequencies }) => x[0] * frequencies[0] * (6 * x[1] + 2),
};
