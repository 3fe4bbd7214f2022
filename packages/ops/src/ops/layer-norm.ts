import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { countRows } from './rms-norm.js';

/**
 * Layer norm over the last axis: `y = (x - mean) / sqrt(var + eps) * weight + bias`, with the variance over H values.
 *
 * Shapes: x and y `[..., H]`, weight and bias `[H]`, all f32; y may take the memory of x. Source: arXiv:1607.06450 eq. 4.
 */
export const layerNorm: OpSpec = {
  name: 'layer-norm',
  inputs: {
    x: { dtypes: f32Only, shape: '... H' },
    weight: { dtypes: f32Only, shape: 'H' },
    bias: { dtypes: f32Only, shape: 'H', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: '... H', mayAlias: 'x' } },
  axes: { H: 'dim' },
  attributes: { eps: { kind: 'number' } },
  fixedAxes: ['H'],
  partition: 'tokens',
  work: '2 * x.numElements',
  bindReference({ inputs: { x, weight, bias }, outputs: { y }, attributes }) {
    const xs = x.data as Float32Array;
    const ys = y.data as Float32Array;
    const eps = attributes['eps'] as number;
    const hiddenDim = weight.shape[0];
    return () => {
      const numRows = countRows(x.shape);
      for (let row = 0; row < numRows; row++) {
        const begin = row * hiddenDim;
        let sum = 0;
        for (let i = 0; i < hiddenDim; i++) sum += xs[begin + i];
        const mean = sum / hiddenDim;
        let squares = 0;
        for (let i = 0; i < hiddenDim; i++) squares += (xs[begin + i] - mean) ** 2;
        const scale = 1 / Math.sqrt(squares / hiddenDim + eps);
        for (let i = 0; i < hiddenDim; i++) {
          const shift = bias === undefined ? 0 : bias.data[i];
          ys[begin + i] = (xs[begin + i] - mean) * scale * weight.data[i] + shift;
        }
      }
    };
  },
  flops: ({ x }) => 8 * x.reduce((product, dim) => product * dim, 1),
};
