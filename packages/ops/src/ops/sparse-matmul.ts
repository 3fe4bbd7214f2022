import { tensorBytes } from '@winnow/tensor';
import { rowsOf } from '../numerics/row-access.js';
import { f32Only, i32Only, weightDTypes } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { dot } from './matmul.js';

/**
 * Gather-GEMV or GEMM with selected rows of a weight matrix: `y[t, j] = sum_i x[t, i] * weight[rows[j], i] +
 * bias[ids[j]]` for j below the count, 0 from there on. Other rows are neither computed nor read.
 *
 * Shapes: x `[T, E]` f32, weight `[S, E]` in any weight dtype, rows `[F]` i32 below S (neuron ids if all neurons are in
 * memory, else slots of a neuron cache), count `[1]` i32 up to F, bias `[F]` f32, ids `[F]` i32 below F (default: the
 * rows), y `[T, F]` f32.
 * Numerics: as `matmul`. Operations and bytes are counted as if all F rows were selected, since their number is not
 * known before a run.
 */
export const sparseMatmul: OpSpec = {
  name: 'sparse-matmul',
  inputs: {
    x: { dtypes: f32Only, shape: 'T E' },
    weight: { dtypes: weightDTypes, shape: 'S E' },
    rows: { dtypes: i32Only, shape: 'F' },
    count: { dtypes: i32Only, shape: '1' },
    bias: { dtypes: f32Only, shape: 'F', optional: true },
    ids: { dtypes: i32Only, shape: 'F', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T F' } },
  axes: { T: 'numTokens', E: 'dim', S: 'numNeurons', F: 'maxActive' },
  attributes: {},
  fixedAxes: ['E', 'S', 'F'],
  partition: 'rows',
  // as if all neurons were active, since their number is known only after the previous op
  work: '0.25 * x.numTokens * rows.maxActive * weight.dim',
  bindReference({ inputs: { x, weight, rows, count, bias, ids = rows }, outputs: { y } }) {
    const xs = x.data as Float32Array;
    const ys = y.data as Float32Array;
    const numInputs = weight.shape[1];
    const numOutputs = rows.shape[0];
    const weights = rowsOf(weight, numInputs);
    return () => {
      const numTokens = x.shape[0];
      const numChosen = count.data[0];
      for (let j = 0; j < numOutputs; j++) {
        const isChosen = j < numChosen;
        const from = isChosen ? weights.at(rows.data[j] * numInputs) : 0;
        const offset = bias === undefined ? 0 : bias.data[ids.data[j]];
        for (let t = 0; t < numTokens; t++) {
          ys[t * numOutputs + j] = isChosen ? dot(xs, t * numInputs, weights.values, from, numInputs) + offset : 0;
        }
      }
    };
  },
  flops: ({ x, rows }) => 2 * x[0] * x[1] * rows[0],
  bytes: ({ x, y, rows, weight: [numRows, numInputs] }, _attributes, { weight = 'f32' } = {}) =>
    tensorBytes('f32', x) +
    tensorBytes('f32', y) +
    4 * rows[0] +
    tensorBytes(weight, [Math.min(numRows, rows[0]), numInputs]),
};
