import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * The weighted sum of the active experts' outputs: `y[t] = sum_k weights[t, k] * x[t, k]`.
 *
 * Shapes: x `[T, K, E]`, weights `[T, K]`, y `[T, E]` f32.
 * Numerics: sums in f64, one rounding to f32.
 */
export const expertCombine: OpSpec = {
  name: 'expert-combine',
  inputs: { x: { dtypes: f32Only, shape: 'T K E' }, weights: { dtypes: f32Only, shape: 'T K' } },
  outputs: { y: { dtypes: f32Only, shape: 'T E' } },
  axes: { T: 'numTokens', K: 'k', E: 'dim' },
  attributes: {},
  fixedAxes: ['K', 'E'],
  partition: 'tokens',
  bindReference({ inputs: { x, weights }, outputs: { y } }) {
    return () => {
      const [numTokens, numChoices, length] = x.shape;
      for (let t = 0; t < numTokens; t++) {
        for (let i = 0; i < length; i++) {
          let sum = 0;
          for (let k = 0; k < numChoices; k++) {
            sum += weights.data[t * numChoices + k] * x.data[(t * numChoices + k) * length + i];
          }
          y.data[t * length + i] = sum;
        }
      }
    };
  },
  flops: ({ x }) => 2 * x[0] * x[1] * x[2],
};
