import { activationKinds } from '../numerics/activation-functions.js';
import { f32Only, weightDTypes } from '../spec/dtypes.js';
import type { OpSpec, TensorView } from '../spec/op-spec.js';
import { glu } from './glu.js';
import { matmul } from './matmul.js';

/**
 * The first half of a gated FFN: `y = kind(x gate^T) * (x up^T)`. A backend can apply the activation while both results
 * are in registers, and never stores them.
 *
 * Shapes: x `[T, I]` f32, gate and up `[O, I]` in any weight dtype, y `[T, O]` f32.
 * Numerics: as two `matmul` and a `glu`, bit by bit.
 */
export const gatedMatmul: OpSpec = {
  name: 'gated-matmul',
  inputs: {
    x: { dtypes: f32Only, shape: 'T I' },
    gate: { dtypes: weightDTypes, shape: 'O I' },
    up: { dtypes: weightDTypes, shape: 'O I' },
  },
  outputs: { y: { dtypes: f32Only, shape: 'T O' } },
  axes: { T: 'numTokens', I: 'numInputs', O: 'numOutputs' },
  attributes: { kind: { kind: 'string', values: activationKinds } },
  fixedAxes: ['O', 'I'],
  partition: 'rows',
  work: '0.5 * x.numTokens * gate.numOutputs * gate.numInputs',
  bindReference({ inputs: { x, gate, up }, outputs: { y }, attributes }) {
    const product = (): TensorView => ({ dtype: 'f32', shape: y.shape, data: new Float32Array(y.data.length) });
    const products = { gate: product(), up: product() };
    const ofGate = matmul.bindReference({ inputs: { x, weight: gate }, outputs: { y: products.gate }, attributes: {} });
    const ofUp = matmul.bindReference({ inputs: { x, weight: up }, outputs: { y: products.up }, attributes: {} });
    const unclamped = { ...attributes, limit: 0, alpha: 1 };
    const activate = glu.bindReference({ inputs: products, outputs: { y }, attributes: unclamped });
    return () => {
      ofGate();
      ofUp();
      activate();
    };
  },
  flops: ({ x, gate }) => 4 * x[0] * gate[0] * gate[1] + 9 * x[0] * gate[0],
};
