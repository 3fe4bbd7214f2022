import { ArgumentError } from '@winnow/tensor';
import { sinkLogitsInput } from '../attention/sparse-inputs.js';
import { finishRows } from '../numerics/partial-softmax.js';
import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Turns a merged partial state into attention output: `y = o / l`, and zeros without visible keys (`l = 0`). With sinks,
 * `y = o / (l + exp(sinkLogits - m))`.
 *
 * Shapes: l and m `[1, T, N]`, o `[1, T, N, D]`, sinkLogits `[N]`, y `[T, N, D]`, all f32; m and sinkLogits go together.
 */
export const attentionFinish: OpSpec = {
  name: 'attention-finish',
  inputs: {
    l: { dtypes: f32Only, shape: '1 T N' },
    o: { dtypes: f32Only, shape: '1 T N D' },
    m: { dtypes: f32Only, shape: '1 T N', optional: true },
    sinkLogits: sinkLogitsInput,
  },
  outputs: { y: { dtypes: f32Only, shape: 'T N D' } },
  axes: { T: 'numTokens', N: 'numHeads', D: 'valueDim' },
  attributes: {},
  fixedAxes: ['N', 'D'],
  partition: 'tokens',
  work: 'o.numElements',
  check({ m, sinkLogits }) {
    if ((m === undefined) === (sinkLogits === undefined)) return;
    const actual = m === undefined ? 'sinkLogits' : 'm';
    throw new ArgumentError({ argument: 'attention-finish: m, sinkLogits', expected: 'both or none', actual });
  },
  bindReference({ inputs: { l, o, m, sinkLogits }, outputs: { y } }) {
    const sums = new Float64Array(l.data.length);
    return () => {
      const numRows = y.shape[0] * y.shape[1];
      for (let row = 0; row < numRows; row++) {
        const sink = sinkLogits === undefined ? 0 : Math.exp(sinkLogits.data[row % y.shape[1]] - m.data[row]);
        sums[row] = l.data[row] + sink;
      }
      finishRows(sums, o.data, numRows, y.data as Float32Array);
    };
  },
  flops: ({ o }) => o.reduce((product, dim) => product * dim, 1),
};
