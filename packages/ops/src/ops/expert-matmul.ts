import { ShapeError, tensorBytes } from '@winnow/tensor';
import { rowsOf } from '../numerics/row-access.js';
import { f32Only, i32Only, weightDTypes } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { dot } from './matmul.js';

/**
 * GEMMs with the weights of active experts: `y[t, k, o] = sum_i x[t, j, i] * weight[ids[t, k], o, i]`, with j = k, or j
 * = 0 if all experts of a token share one row. Experts without tokens are neither computed nor read. With `slots`, the
 * matrix of expert e is `weight[slots[e]]`; if that is negative, its rows of y are 0.
 *
 * Shapes: x `[T, J, I]` f32 with J = 1 or J = K, ids `[T, K]` i32 below X, weight `[S, O, I]` in any weight dtype,
 * slots `[X]` i32 below S, or absent: S = X; y `[T, K, O]` f32.
 * Numerics: as `matmul`.
 */
export const expertMatmul: OpSpec = {
  name: 'expert-matmul',
  inputs: {
    x: { dtypes: f32Only, shape: 'T J I' },
    ids: { dtypes: i32Only, shape: 'T K' },
    weight: { dtypes: weightDTypes, shape: 'S O I' },
    slots: { dtypes: i32Only, shape: 'X', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T K O' } },
  axes: { T: 'numTokens', J: 'rowsPerToken', I: 'numInputs', K: 'k', S: 'numSlots', O: 'numOutputs', X: 'numExperts' },
  attributes: {},
  fixedAxes: ['J', 'K', 'S', 'X', 'O', 'I'],
  partition: 'rows',
  work: '0.25 * ids.numElements * weight.numOutputs * weight.numInputs',
  check({ x, ids }) {
    if (x[1] !== 1 && x[1] !== ids[1]) {
      const expected = `1 or ${String(ids[1])}`;
      throw new ShapeError({ op: 'expert-matmul', rule: 'rows of x per token', expected, actual: String(x[1]) });
    }
  },
  bindReference({ inputs: { x, ids, weight, slots }, outputs: { y } }) {
    const xs = x.data as Float32Array;
    const ys = y.data as Float32Array;
    const [numSlots, numOutputs, numInputs] = weight.shape;
    const numExperts = slots === undefined ? numSlots : slots.shape[0];
    const numChoices = ids.shape[1];
    const rowsPerToken = x.shape[1];
    const rows = rowsOf(weight, numInputs);
    const pairs = new Int32Array(ids.data.length); // the (token, choice) pairs of one expert
    return () => {
      const numPairs = ids.shape[0] * numChoices;
      for (let expert = 0; expert < numExperts; expert++) {
        let count = 0;
        for (let pair = 0; pair < numPairs; pair++) if (ids.data[pair] === expert) pairs[count++] = pair;
        if (count === 0) continue;
        const slot = slots === undefined ? expert : slots.data[expert];
        if (slot < 0) {
          for (let i = 0; i < count; i++) ys.fill(0, pairs[i] * numOutputs, (pairs[i] + 1) * numOutputs);
          continue;
        }
        for (let o = 0; o < numOutputs; o++) {
          const from = rows.at((slot * numOutputs + o) * numInputs);
          for (let i = 0; i < count; i++) {
            const pair = pairs[i];
            const source = rowsPerToken === 1 ? Math.floor(pair / numChoices) : pair;
            ys[pair * numOutputs + o] = dot(xs, source * numInputs, rows.values, from, numInputs);
          }
        }
      }
    };
  },
  flops: ({ ids, weight }) => 2 * ids[0] * ids[1] * weight[1] * weight[2],
  // every pair may have a different expert
  bytes: ({ x, ids, y, weight: [numExperts, ...matrix] }, _attributes, { weight = 'f32' } = {}) =>
    tensorBytes('f32', x) +
    tensorBytes('f32', y) +
    4 * ids[0] * ids[1] +
    tensorBytes(weight, [Math.min(numExperts, ids[0] * ids[1]), ...matrix]),
};
