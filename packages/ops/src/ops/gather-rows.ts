import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/** Gathers rows: `y[r] = x[rows[r]]`. Shapes: x `[T, E]`, rows `[R]` i32 below T, y `[R, E]`. */
export const gatherRows: OpSpec = {
  name: 'gather-rows',
  inputs: { x: { dtypes: f32Only, shape: 'T E' }, rows: { dtypes: i32Only, shape: 'R' } },
  outputs: { y: { dtypes: f32Only, shape: 'R E' } },
  axes: { T: 'numTokens', E: 'dim', R: 'numRows' },
  attributes: {},
  fixedAxes: ['E'],
  partition: 'tokens',
  work: 'y.numElements',
  bindReference({ inputs: { x, rows }, outputs: { y } }) {
    const hiddenDim = x.shape[1];
    return () => {
      const numRows = rows.shape[0];
      for (let r = 0; r < numRows; r++) {
        const begin = rows.data[r] * hiddenDim;
        for (let i = 0; i < hiddenDim; i++) y.data[r * hiddenDim + i] = x.data[begin + i];
      }
    };
  },
  flops: () => 0,
  bytes: ({ y }) => 4 * y[0] * (2 * y[1] + 1),
};
