import { f32Only } from './dtypes.js';
import type { OpSpec } from './op-spec.js';

/**
 * Turns a merged partial state into attention output: `y = o / l`, and zeros where no key was seen (`l = 0`).
 *
 * Shapes: l `[1, T, N]`, o `[1, T, N, D]`, y `[T, N, D]`, all f32.
 */
export const attentionFinish: OpSpec = {
  name: 'attention-finish',
  inputs: { l: { dtypes: f32Only, shape: '1 T N' }, o: { dtypes: f32Only, shape: '1 T N D' } },
  outputs: { y: { dtypes: f32Only, shape: 'T N D' } },
  attributes: {},
  fixedAxes: ['N', 'D'],
  partition: 'tokens',
  bindReference({ inputs: { l, o }, outputs: { y } }) {
    const ys = y.data as Float32Array;
    const dim = y.shape[2];
    return () => {
      const numRows = y.shape[0] * y.shape[1];
      for (let row = 0; row < numRows; row++) {
        const factor = l.data[row] === 0 ? 0 : 1 / l.data[row];
        for (let i = row * dim; i < (row + 1) * dim; i++) ys[i] = o.data[i] * factor;
      }
    };
  },
  flops: ({ o }) => o.reduce((product, dim) => product * dim, 1),
};
