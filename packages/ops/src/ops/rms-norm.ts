import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Root-mean-square norm over the last axis: `y = x / sqrt(mean(x^2) + eps) * weight`.
 *
 * Shapes: x and y `[..., H]`, weight `[H]`, all f32; y may take the memory of x.
 * Source: arXiv:1910.07467 eq. 4, with eps inside the root as in the Llama family.
 */
export const rmsNorm: OpSpec = {
  name: 'rms-norm',
  inputs: { x: { dtypes: f32Only, shape: '... H' }, weight: { dtypes: f32Only, shape: 'H' } },
  outputs: { y: { dtypes: f32Only, shape: '... H', mayAlias: 'x' } },
  axes: { H: 'dim' },
  attributes: { eps: { kind: 'number' } },
  fixedAxes: ['H'],
  partition: 'tokens',
  work: '2 * x.numElements',
  bindReference({ inputs: { x, weight }, outputs: { y }, attributes }) {
    const xs = x.data as Float32Array;
    const weights = weight.data as Float32Array;
    const ys = y.data as Float32Array;
    const eps = attributes['eps'] as number;
    const hiddenDim = weight.shape[0];
    return () => {
      const numRows = countRows(x.shape);
      for (let row = 0; row < numRows; row++) {
        const begin = row * hiddenDim;
        let sum = 0;
        for (let i = 0; i < hiddenDim; i++) sum += xs[begin + i] * xs[begin + i];
        const scale = 1 / Math.sqrt(sum / hiddenDim + eps);
        for (let i = 0; i < hiddenDim; i++) ys[begin + i] = xs[begin + i] * scale * weights[i];
      }
    };
  },
  flops: ({ x }) => 4 * x.reduce((product, dim) => product * dim, 1),
};

/** Product of all axes except the last. */
export function countRows(shape: readonly number[]): number {
  let numRows = 1;
  for (let axis = 0; axis < shape.length - 1; axis++) numRows *= shape[axis];
  return numRows;
}
