import { f32Only, weightDTypes } from './dtypes.js';
import type { OpSpec } from './op-spec.js';
import { rowReader } from './row-access.js';

/**
 * Product with a weight matrix whose rows are outputs: `y[t, o] = sum_i x[t, i] * weight[o, i] + bias[o]`.
 *
 * Shapes: x `[T, I]` f32, weight `[O, I]` in any weight dtype, bias `[O]` f32, y `[T, O]` f32.
 * Numerics: weights decoded to f32, products and sums in f64, one rounding to f32. With `n = I`, an f32 implementation
 * stays within `(n + 1) * 2^-24 * sum_i |x_i * w_i|` of it.
 */
export const matmul: OpSpec = {
  name: 'matmul',
  inputs: {
    x: { dtypes: f32Only, shape: 'T I' },
    weight: { dtypes: weightDTypes, shape: 'O I' },
    bias: { dtypes: f32Only, shape: 'O', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T O' } },
  attributes: {},
  fixedAxes: ['O', 'I'],
  partition: 'rows',
  bindReference({ inputs: { x, weight, bias }, outputs: { y } }) {
    const xs = x.data as Float32Array;
    const ys = y.data as Float32Array;
    const biases = bias?.data as Float32Array | undefined;
    const [numOutputs, numInputs] = weight.shape;
    const readRow = rowReader(weight);
    const row = new Float32Array(numInputs);
    return () => {
      const numTokens = x.shape[0];
      if (numTokens === 0) return; // spares decoding the weights
      for (let o = 0; o < numOutputs; o++) {
        readRow(o * numInputs, numInputs, row, 0);
        const bias = biases === undefined ? 0 : biases[o];
        for (let t = 0; t < numTokens; t++) {
          const begin = t * numInputs;
          let sum = 0;
          for (let i = 0; i < numInputs; i++) sum += xs[begin + i] * row[i];
          ys[t * numOutputs + o] = sum + bias;
        }
      }
    };
  },
  flops: ({ x, weight }) => 2 * x[0] * weight[0] * weight[1],
};
