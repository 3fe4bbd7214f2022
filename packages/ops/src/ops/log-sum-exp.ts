import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * `y[r] = max + log(sum_i exp(x[r, i] - max))`: subtract it from a logit to get its log-probability. A row of only
 * -Infinity gives -Infinity; NaN or +Infinity anywhere gives NaN.
 * Shapes: x `[R, V]`, y `[R]`, f32.
 * Numerics: sum in f64.
 */
export const logSumExp: OpSpec = {
  name: 'log-sum-exp',
  inputs: { x: { dtypes: f32Only, shape: 'R V' } },
  outputs: { y: { dtypes: f32Only, shape: 'R' } },
  axes: { R: 'numRows', V: 'vocabSize' },
  attributes: {},
  partition: 'tokens',
  bindReference({ inputs: { x }, outputs: { y } }) {
    return () => {
      const [numRows, length] = x.shape;
      for (let row = 0; row < numRows; row++) {
        let max = -Infinity;
        for (let i = 0; i < length; i++) {
          const value = x.data[row * length + i];
          if (value > max || Number.isNaN(value)) max = value;
        }
        let sum = 0;
        if (max !== -Infinity) for (let i = 0; i < length; i++) sum += Math.exp(x.data[row * length + i] - max);
        y.data[row] = max === -Infinity ? max : max + Math.log(sum);
      }
    };
  },
  flops: ({ x }) => 3 * x[0] * x[1],
};
