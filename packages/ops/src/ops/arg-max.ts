import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Index of the maximum of every row; ties go to the lowest index. NaN counts as smaller than everything.
 *
 * Shapes: x `[R, V]` f32, index `[R]` i32; 0 for a row that is empty or all NaN.
 */
export const argMax: OpSpec = {
  name: 'arg-max',
  inputs: { x: { dtypes: f32Only, shape: 'R V' } },
  outputs: { index: { dtypes: i32Only, shape: 'R' } },
  axes: { R: 'numRows', V: 'vocabSize' },
  attributes: {},
  partition: 'tokens',
  bindReference({ inputs: { x }, outputs: { index } }) {
    return () => {
      const [numRows, length] = x.shape;
      for (let row = 0; row < numRows; row++) {
        let best = 0;
        let max = NaN;
        for (let i = 0; i < length; i++) {
          const value = x.data[row * length + i];
          if (value > max || (Number.isNaN(max) && !Number.isNaN(value))) {
            max = value;
            best = i;
          }
        }
        index.data[row] = best;
      }
    };
  },
  flops: ({ x }) => x[0] * x[1],
};
