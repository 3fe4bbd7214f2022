import { tensorBytes } from '@winnow/tensor';
import { rowReader } from '../numerics/row-access.js';
import { f32Only, i32Only, weightDTypes } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Number of rows that `sparse-combine` sums before rounding to f32. Sums that are continued after a multiple of it
 * equal those of one pass, bit by bit, so the unit of an implementation must divide it.
 */
export const neuronGroup: number = 32;

/**
 * The weighted sum of selected rows of a matrix, such as a transposed down projection: `y[t] = previous[t] + sum_{j <
 * count} h[t, j] * weight[rows[j]]`, without `previous` from 0. Other rows are neither computed nor read.
 *
 * Shapes: h `[T, F]` f32, whose columns from the count on are ignored; weight `[S, E]` in any weight dtype; rows `[F]`
 * i32 below S, count `[1]` i32 up to F, as for `sparse-matmul`; previous and y `[T, E]` f32.
 * Numerics: weights are dequantized to f32, products and sums are in f64, rounded to f32 after every `neuronGroup`
 * rows. With `n = count`, an f32 implementation stays within `(n + 1 + n / neuronGroup) * 2^-24 * (|previous| + sum_j
 * |h_j * w_j|)` of it. A sum over several records, each except the last with a multiple of `neuronGroup` rows, equals
 * that of one record, bit by bit. Operations and bytes are counted as if all F rows were selected.
 */
export const sparseCombine: OpSpec = {
  name: 'sparse-combine',
  inputs: {
    h: { dtypes: f32Only, shape: 'T F' },
    weight: { dtypes: weightDTypes, shape: 'S E' },
    rows: { dtypes: i32Only, shape: 'F' },
    count: { dtypes: i32Only, shape: '1' },
    previous: { dtypes: f32Only, shape: 'T E', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T E' } },
  axes: { T: 'numTokens', E: 'dim', S: 'numNeurons', F: 'maxActive' },
  attributes: {},
  fixedAxes: ['F', 'S', 'E'],
  partition: 'rows',
  work: '0.25 * h.numTokens * rows.maxActive * weight.dim', // as if all neurons were active
  bindReference({ inputs: { h, weight, rows, count, previous }, outputs: { y } }) {
    const [, numOutputs] = weight.shape;
    const numNeurons = rows.shape[0];
    const readRow = rowReader(weight);
    const row = new Float32Array(numOutputs);
    const capacity = y.data.length / Math.max(1, numOutputs); // tokens
    const sums = new Float64Array(capacity * numOutputs);
    return () => {
      const numTokens = h.shape[0];
      const numSums = numTokens * numOutputs;
      for (let i = 0; i < numSums; i++) sums[i] = previous === undefined ? 0 : previous.data[i];
      for (let j = 0; j < count.data[0]; j++) {
        if (j > 0 && j % neuronGroup === 0) for (let i = 0; i < numSums; i++) sums[i] = Math.fround(sums[i]);
        readRow(rows.data[j] * numOutputs, numOutputs, row, 0);
        for (let t = 0; t < numTokens; t++) {
          const factor = h.data[t * numNeurons + j];
          const begin = t * numOutputs;
          for (let i = 0; i < numOutputs; i++) sums[begin + i] += factor * row[i];
        }
      }
      for (let i = 0; i < numSums; i++) y.data[i] = sums[i];
    };
  },
  flops: ({ h, weight }) => 2 * h[0] * h[1] * weight[1],
  bytes: ({ h, y, previous, rows, weight: [numRows, numOutputs] }, _attributes, { weight = 'f32' } = {}) =>
    tensorBytes('f32', h) +
    tensorBytes('f32', y) +
    (previous === undefined ? 0 : tensorBytes('f32', previous)) +
    4 * rows[0] +
    tensorBytes(weight, [Math.min(numRows, rows[0]), numOutputs]),
};
