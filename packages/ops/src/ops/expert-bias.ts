import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Adds the biases of active experts: `y[t, k] = x[t, k] + bias[ids[t, k]]`.
 *
 * Shapes: x and y `[T, K, O]` f32, ids `[T, K]` i32 below X, bias `[X, O]` f32; y may take the memory of x.
 */
export const expertBias: OpSpec = {
  name: 'expert-bias',
  inputs: {
    x: { dtypes: f32Only, shape: 'T K O' },
    ids: { dtypes: i32Only, shape: 'T K' },
    bias: { dtypes: f32Only, shape: 'X O' },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T K O', mayAlias: 'x' } },
  axes: { T: 'numTokens', K: 'k', O: 'numOutputs', X: 'numExperts' },
  attributes: {},
  fixedAxes: ['K', 'O', 'X'],
  partition: 'tokens',
  bindReference({ inputs: { x, ids, bias }, outputs: { y } }) {
    return () => {
      const [numTokens, numChoices, length] = x.shape;
      for (let row = 0; row < numTokens * numChoices; row++) {
        const from = ids.data[row] * length;
        for (let i = 0; i < length; i++) y.data[row * length + i] = x.data[row * length + i] + bias.data[from + i];
      }
    };
  },
  flops: ({ x }) => x[0] * x[1] * x[2],
};
