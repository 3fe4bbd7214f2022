import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { countRows } from './rms-norm.js';

/**
 * One factor per row: `y[..., i] = x[..., i] * scales[..., 0]`, such as the gate of a shared expert.
 *
 * Shapes: x and y `[..., E]`, scales `[..., 1]`, all f32; y may take the memory of x.
 */
export const scaleRows: OpSpec = {
  name: 'scale-rows',
  inputs: { x: { dtypes: f32Only, shape: '... E' }, scales: { dtypes: f32Only, shape: '... 1' } },
  outputs: { y: { dtypes: f32Only, shape: '... E', mayAlias: 'x' } },
  axes: { E: 'dim' },
  attributes: {},
  fixedAxes: ['E'],
  partition: 'tokens',
  bindReference({ inputs: { x, scales }, outputs: { y } }) {
    const rowLength = x.shape[x.shape.length - 1];
    return () => {
      const numRows = countRows(x.shape);
      for (let row = 0; row < numRows; row++) {
        const factor = scales.data[row];
        for (let i = row * rowLength; i < (row + 1) * rowLength; i++) y.data[i] = x.data[i] * factor;
      }
    };
  },
  flops: ({ x }) => x.reduce((product, dim) => product * dim, 1),
};
