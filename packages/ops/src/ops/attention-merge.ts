import { ArgumentError } from '@winnow/tensor';
import { clearState, mergeState, type PartialStates } from '../numerics/partial-softmax.js';
import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Merges partial states over disjoint keys, in the order of the parts: P parts of one tensor and, optionally, Q of
 * another (such as a second tier).
 *
 * Shapes: m, l `[P, T, N]`, o `[P, T, N, D]`; second state `[Q, T, N]`, `[Q, T, N, D]`; outputs `[1, T, N]`, `[1, T, N,
 * D]`.
 */
export const attentionMerge: OpSpec = {
  name: 'attention-merge',
  inputs: {
    m: { dtypes: f32Only, shape: 'P T N' },
    l: { dtypes: f32Only, shape: 'P T N' },
    o: { dtypes: f32Only, shape: 'P T N D' },
    m2: { dtypes: f32Only, shape: 'Q T N', optional: true },
    l2: { dtypes: f32Only, shape: 'Q T N', optional: true },
    o2: { dtypes: f32Only, shape: 'Q T N D', optional: true },
  },
  outputs: {
    m: { dtypes: f32Only, shape: '1 T N' },
    l: { dtypes: f32Only, shape: '1 T N' },
    o: { dtypes: f32Only, shape: '1 T N D' },
  },
  axes: { P: 'numParts', Q: 'numParts2', T: 'numTokens', N: 'numHeads', D: 'valueDim' },
  attributes: {},
  fixedAxes: ['P', 'Q', 'N', 'D'],
  partition: 'tokens',
  work: 'o.numElements',
  check({ m2, l2, o2 }) {
    const present = [m2, l2, o2].filter((shape) => shape !== undefined).length;
    if (present !== 0 && present !== 3) {
      const actual = `${present} of them`;
      throw new ArgumentError({ argument: 'attention-merge: m2, l2, o2', expected: 'all or none', actual });
    }
  },
  bindReference({ inputs, outputs }) {
    const first = states(inputs['m'].data, inputs['l'].data, inputs['o'].data);
    const { m2, l2, o2 } = inputs;
    const second = m2 === undefined ? undefined : states(m2.data, l2.data, o2.data);
    const merged = states(outputs['m'].data, outputs['l'].data, outputs['o'].data);
    const dim = outputs['o'].shape[3];
    return () => {
      const [numParts, numTokens, numHeads] = inputs['m'].shape;
      const numRows = numTokens * numHeads;
      for (let row = 0; row < numRows; row++) {
        clearState(merged, row, dim);
        for (let part = 0; part < numParts; part++) mergeState(merged, row, first, part * numRows + row, dim);
        if (second === undefined) continue;
        for (let part = 0; part < m2.shape[0]; part++) mergeState(merged, row, second, part * numRows + row, dim);
      }
    };
  },
  flops: ({ o, o2 = [0] }) => 3 * [o, o2].reduce((sum, shape) => sum + shape.reduce((a, b) => a * b, 1), 0),
};

function states(m: unknown, l: unknown, o: unknown): PartialStates {
  return { m: m as Float32Array, l: l as Float32Array, o: o as Float32Array };
}
