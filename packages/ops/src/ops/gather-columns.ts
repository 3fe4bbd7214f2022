import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Gathers columns: `y[t, j] = x[t, ids[j]]` for j below the count, 0 from there on.
 *
 * Shapes: x and y `[T, F]` f32, ids `[F]` i32 below F, count `[1]` i32 up to F.
 */
export const gatherColumns: OpSpec = {
  name: 'gather-columns',
  inputs: {
    x: { dtypes: f32Only, shape: 'T F' },
    ids: { dtypes: i32Only, shape: 'F' },
    count: { dtypes: i32Only, shape: '1' },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T F' } },
  axes: { T: 'numTokens', F: 'maxActive' },
  attributes: {},
  fixedAxes: ['F'],
  partition: 'tokens',
  bindReference({ inputs: { x, ids, count }, outputs: { y } }) {
    return () => {
      const [numTokens, numColumns] = x.shape;
      for (let t = 0; t < numTokens; t++) {
        const begin = t * numColumns;
        for (let j = 0; j < numColumns; j++) y.data[begin + j] = j < count.data[0] ? x.data[begin + ids.data[j]] : 0;
      }
    };
  },
  flops: () => 0,
};
