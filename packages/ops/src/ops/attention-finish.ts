import { finishRows } from '../numerics/partial-softmax.js';
import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Turns a merged partial state into attention output: `y = o / l`, and zeros without visible keys (`l = 0`).
 *
 * Shapes: l `[1, T, N]`, o `[1, T, N, D]`, y `[T, N, D]`, all f32.
 */
export const attentionFinish: OpSpec = {
  name: 'attention-finish',
  inputs: { l: { dtypes: f32Only, shape: '1 T N' }, o: { dtypes: f32Only, shape: '1 T N D' } },
  outputs: { y: { dtypes: f32Only, shape: 'T N D' } },
  axes: { T: 'numTokens', N: 'numHeads', D: 'valueDim' },
  attributes: {},
  fixedAxes: ['N', 'D'],
  partition: 'tokens',
  work: 'o.numElements',
  bindReference({ inputs: { l, o }, outputs: { y } }) {
    return () => finishRows(l.data, o.data, y.shape[0] * y.shape[1], y.data as Float32Array);
  },
  flops: ({ o }) => o.reduce((product, dim) => product * dim, 1),
};
