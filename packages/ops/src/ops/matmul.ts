import { rowsOf } from '../numerics/row-access.js';
import { f32Only, weightDTypes } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * GEMM with a weight matrix with one row per output: `y[t, o] = sum_i x[t, i] * weight[o, i] + bias[o]`.
 *
 * Shapes: x `[T, I]` f32, weight `[O, I]` in any weight dtype, bias `[O]` f32, y `[T, O]` f32.
 * Numerics: weights are dequantized to f32, products and sums are in f64, rounded once to f32. With `n = I`, an f32
 * implementation stays within `(n + 1) * 2^-24 * sum_i |x_i * w_i|` of it.
 */
export const matmul: OpSpec = {
  name: 'matmul',
  inputs: {
    x: { dtypes: f32Only, shape: 'T I' },
    weight: { dtypes: weightDTypes, shape: 'O I' },
    bias: { dtypes: f32Only, shape: 'O', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T O' } },
  axes: { T: 'numTokens', I: 'numInputs', O: 'numOutputs' },
  attributes: {},
  fixedAxes: ['O', 'I'],
  partition: 'rows',
  work: '0.25 * x.numTokens * weight.numOutputs * weight.numInputs',
  bindReference({ inputs: { x, weight, bias }, outputs: { y } }) {
    const xs = x.data as Float32Array;
    const ys = y.data as Float32Array;
    const biases = bias?.data as Float32Array | undefined;
    const [numOutputs, numInputs] = weight.shape;
    const rows = rowsOf(weight, numInputs);
    return () => {
      const numTokens = x.shape[0];
      if (numTokens === 0) return; // avoids dequantizing the weights
      for (let o = 0; o < numOutputs; o++) {
        const from = rows.at(o * numInputs);
        const bias = biases === undefined ? 0 : biases[o];
        for (let t = 0; t < numTokens; t++) {
          ys[t * numOutputs + o] = dot(xs, t * numInputs, rows.values, from, numInputs) + bias;
        }
      }
    };
  },
  flops: ({ x, weight }) => 2 * x[0] * weight[0] * weight[1],
};

/** `sum_i xs[begin + i] * rows[from + i]`, with four independent sums to hide the latency of additions. */
export function dot(xs: Float32Array, begin: number, rows: Float32Array, from: number, length: number): number {
  let sum0 = 0;
  let sum1 = 0;
  let sum2 = 0;
  let sum3 = 0;
  let i = 0;
  for (; i + 3 < length; i += 4) {
    const a = begin + i;
    const b = from + i;
    sum0 += xs[a] * rows[b];
    sum1 += xs[a + 1] * rows[b + 1];
    sum2 += xs[a + 2] * rows[b + 2];
    sum3 += xs[a + 3] * rows[b + 3];
  }
  for (; i < length; i++) sum0 += xs[begin + i] * rows[from + i];
  return sum0 + sum1 + (sum2 + sum3);
}
