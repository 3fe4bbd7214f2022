import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { countRows } from './rms-norm.js';

/**
 * Softmax over the last axis: `y_i = exp(x_i - max) / sum_j exp(x_j - max)`. A row of only -Infinity gives
 * zeros; NaN or +Infinity anywhere makes the whole row NaN.
 *
 * Shapes: x and y `[..., H]` f32; y may take the memory of x.
 */
export const softmax: OpSpec = {
  name: 'softmax',
  inputs: { x: { dtypes: f32Only, shape: '... H' } },
  outputs: { y: { dtypes: f32Only, shape: '... H', mayAlias: 'x' } },
  axes: { H: 'dim' },
  attributes: {},
  partition: 'tokens',
  bindReference({ inputs: { x }, outputs: { y } }) {
    const xs = x.data as Float32Array;
    const ys = y.data as Float32Array;
    return () => {
      const numRows = countRows(x.shape);
      const length = x.shape[x.shape.length - 1];
      for (let row = 0; row < numRows; row++) softmaxRow(xs, row * length, length, ys);
    };
  },
  flops: ({ x }) => 4 * x.reduce((product, dim) => product * dim, 1),
};

/** The softmax of `x[begin...]` in f64, written to the same elements of `y`, which may be `x`. */
export function softmaxRow<T extends Float32Array | Float64Array>(x: T, begin: number, length: number, y: T): void {
  const end = begin + length;
  let max = -Infinity;
  for (let i = begin; i < end; i++) if (x[i] > max || Number.isNaN(x[i])) max = x[i];
  let sum = 0;
  if (max !== -Infinity) for (let i = begin; i < end; i++) sum += Math.exp(x[i] - max);
  for (let i = begin; i < end; i++) y[i] = sum === 0 ? 0 : Math.exp(x[i] - max) / sum;
}
