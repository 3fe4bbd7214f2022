import { tensorBytes } from '@winnow/tensor';
import { f32Only, weightDTypes } from '../spec/dtypes.js';
import type { OpSpec, TensorView } from '../spec/op-spec.js';
import { matmul } from './matmul.js';
import { rmsNorm } from './rms-norm.js';

/**
 * A matmul of normalized activations: `y = matmul(rms-norm(x, norm), weight) + bias`. A backend can quantize the
 * activations while it normalizes them, without storing them.
 *
 * Shapes: x `[T, I]` f32, norm `[I]` f32, weight `[O, I]` in any weight dtype, bias `[O]` f32, y `[T, O]` f32.
 * Numerics: as those two ops, bit by bit.
 */
export const normMatmul: OpSpec = {
  name: 'norm-matmul',
  inputs: {
    x: { dtypes: f32Only, shape: 'T I' },
    norm: { dtypes: f32Only, shape: 'I' },
    weight: { dtypes: weightDTypes, shape: 'O I' },
    bias: { dtypes: f32Only, shape: 'O', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T O' } },
  axes: { T: 'numTokens', I: 'numInputs', O: 'numOutputs' },
  attributes: { eps: { kind: 'number' } },
  fixedAxes: ['O', 'I'],
  partition: 'rows',
  work: '0.25 * x.numTokens * weight.numOutputs * weight.numInputs + 2 * x.numElements',
  bindReference({ inputs: { x, norm, weight, bias }, outputs: { y }, attributes }) {
    const normed: TensorView = { dtype: 'f32', shape: x.shape, data: new Float32Array(x.data.length) };
    const normalize = rmsNorm.bindReference({ inputs: { x, weight: norm }, outputs: { y: normed }, attributes });
    const inputs = { x: normed, weight, ...(bias === undefined ? {} : { bias }) };
    const multiply = matmul.bindReference({ inputs, outputs: { y }, attributes: {} });
    return () => {
      normalize();
      multiply();
    };
  },
  flops: ({ x, weight }) => 2 * x[0] * weight[0] * weight[1] + 4 * x[0] * x[1],
  bytes: ({ x, norm, bias, y, weight }, _attributes, { weight: dtype = 'f32' } = {}) =>
    tensorBytes('f32', x) +
    tensorBytes('f32', norm) +
    tensorBytes('f32', bias ?? [0]) +
    tensorBytes('f32', y) +
    tensorBytes(dtype, weight),
};
