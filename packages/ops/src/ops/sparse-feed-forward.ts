import { ShapeError, tensorBytes } from '@winnow/tensor';
import { activationFunction, activationKinds, type ActivationKind } from '../numerics/activation-functions.js';
import { rowReader } from '../numerics/row-access.js';
import { f32Only, i32Only, weightDTypes } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { dot } from './matmul.js';
import { neuronGroup } from './sparse-combine.js';

/**
 * A gated FFN over the active neurons, whose three rows are interleaved: `y[t] = previous[t] + sum_{j < count}
 * kind(g[t, j]) * u[t, j] * weight[rows[j], 2]` with `g[t, j] = x[t] . weight[rows[j], 0]` and `u[t, j] = x[t] .
 * weight[rows[j], 1]`, without `previous` from 0. The same as two `sparse-matmul`, a `glu` and a `sparse-combine`, but
 * it reads one long range per neuron instead of three short ones.
 *
 * Shapes: x `[T, E]` f32; weight `[S, M, E]` in any weight dtype, M = 3: the rows of gate, up and down; rows `[F]` i32
 * below S, count `[1]` i32 up to F; previous and y `[T, E]` f32.
 * Numerics: as those four ops, bit by bit. Operations and bytes are counted as if all F neurons were active.
 */
export const sparseFeedForward: OpSpec = {
  name: 'sparse-feed-forward',
  inputs: {
    x: { dtypes: f32Only, shape: 'T E' },
    weight: { dtypes: weightDTypes, shape: 'S M E' },
    rows: { dtypes: i32Only, shape: 'F' },
    count: { dtypes: i32Only, shape: '1' },
    previous: { dtypes: f32Only, shape: 'T E', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T E' } },
  axes: { T: 'numTokens', E: 'dim', S: 'numNeurons', M: 'numMatrices', F: 'maxActive' },
  attributes: { kind: { kind: 'string', values: activationKinds } },
  fixedAxes: ['E', 'S', 'M', 'F'],
  partition: 'rows',
  work: '0.25 * x.numTokens * rows.maxActive * x.dim * 3', // as if all neurons were active
  check({ weight: [, numMatrices] }) {
    if (numMatrices === 3) return;
    const rule = 'matrices of weight';
    throw new ShapeError({ op: 'sparse-feed-forward', rule, expected: 'gate, up and down', actual: `${numMatrices}` });
  },
  bindReference({ inputs: { x, weight, rows, count, previous }, outputs: { y }, attributes }) {
    const apply = activationFunction(attributes['kind'] as ActivationKind);
    const [, , width] = weight.shape;
    const xs = x.data as Float32Array;
    const readRow = rowReader(weight);
    const [gate, up, down] = [new Float32Array(width), new Float32Array(width), new Float32Array(width)];
    const sums = new Float64Array(y.data.length);
    return () => {
      const numTokens = x.shape[0];
      const numSums = numTokens * width;
      for (let i = 0; i < numSums; i++) sums[i] = previous === undefined ? 0 : previous.data[i];
      for (let j = 0; j < count.data[0]; j++) {
        if (j > 0 && j % neuronGroup === 0) for (let i = 0; i < numSums; i++) sums[i] = Math.fround(sums[i]);
        const at = 3 * rows.data[j] * width;
        readRow(at, width, gate, 0);
        readRow(at + width, width, up, 0);
        readRow(at + 2 * width, width, down, 0);
        for (let t = 0; t < numTokens; t++) {
          const begin = t * width;
          const ofGate = Math.fround(dot(xs, begin, gate, 0, width));
          const factor = Math.fround(apply(ofGate) * Math.fround(dot(xs, begin, up, 0, width)));
          for (let i = 0; i < width; i++) sums[begin + i] += factor * down[i];
        }
      }
      for (let i = 0; i < numSums; i++) y.data[i] = sums[i];
    };
  },
  flops: ({ x, rows }) => x[0] * rows[0] * (6 * x[1] + 9),
  bytes: ({ x, y, previous, rows, weight: [numRows, , width] }, _attributes, { weight = 'f32' } = {}) =>
    tensorBytes('f32', x) +
    tensorBytes('f32', y) +
    (previous === undefined ? 0 : tensorBytes('f32', previous)) +
    4 * rows[0] +
    tensorBytes(weight, [Math.min(numRows, rows[0]), 3, width]),
};
