import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Stores rows by index, the inverse of `gather-rows`: `y[rows[t]] = x[t]`. All other rows of y are unchanged.
 *
 * Shapes: x `[T, E]`, rows `[T]` i32 below R, y `[R, E]`. A negative index stores nothing. Two tokens of one step must
 * not share a row.
 */
export const scatterRows: OpSpec = {
  name: 'scatter-rows',
  inputs: { x: { dtypes: f32Only, shape: 'T E' }, rows: { dtypes: i32Only, shape: 'T' } },
  outputs: { y: { dtypes: f32Only, shape: 'R E', updates: true } },
  axes: { T: 'numTokens', E: 'dim', R: 'numRows' },
  attributes: {},
  fixedAxes: ['R', 'E'],
  partition: 'tokens',
  bindReference({ inputs: { x, rows }, outputs: { y } }) {
    const rowLength = x.shape[1];
    return () => {
      const numTokens = rows.shape[0];
      for (let t = 0; t < numTokens; t++) {
        const row = rows.data[t];
        if (row < 0) continue;
        for (let i = 0; i < rowLength; i++) y.data[row * rowLength + i] = x.data[t * rowLength + i];
      }
    };
  },
  flops: () => 0,
  bytes: ({ x }) => 4 * x[0] * (2 * x[1] + 1),
};
