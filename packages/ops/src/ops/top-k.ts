import { ArgumentError } from '@winnow/tensor';
import { selectTopK } from '../numerics/select-top-k.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * The `k` largest values of every row in descending order, with their indices, ties by lower index. NaN counts as
 * smaller than everything.
 *
 * Shapes: x `[R, V]` f32 with `k <= V`, values `[R, K]` f32, indices `[R, K]` i32.
 * Cost: V + V log K per row in the worst case.
 */
export const topK: OpSpec = {
  name: 'top-k',
  inputs: { x: { dtypes: f32Only, shape: 'R V' } },
  outputs: { values: { dtypes: f32Only, shape: 'R K' }, indices: { dtypes: i32Only, shape: 'R K' } },
  axes: { R: 'numRows', V: 'vocabSize', K: 'k' },
  attributes: { k: { kind: 'number', integer: true } },
  attributeDims: { K: 'k' },
  fixedAxes: ['V'],
  partition: 'tokens',
  check({ x }, { k }) {
    if (Number(k) < 1 || Number(k) > Number(x[1])) {
      throw new ArgumentError({ argument: 'top-k: k', expected: `1 to ${String(x[1])}`, actual: String(k) });
    }
  },
  bindReference({ inputs: { x }, outputs: { values, indices }, attributes }) {
    const k = attributes['k'] as number;
    const bestIndices = new Int32Array(k);
    const bestValues = new Float32Array(k);
    return () => {
      const [numRows, length] = x.shape;
      for (let row = 0; row < numRows; row++) {
        selectTopK(x.data as Float32Array, row * length, length, k, bestIndices, bestValues);
        for (let rank = 0; rank < k; rank++) {
          indices.data[row * k + rank] = bestIndices[rank];
          values.data[row * k + rank] = bestValues[rank];
        }
      }
    };
  },
  flops: ({ x }) => x[0] * x[1],
};
