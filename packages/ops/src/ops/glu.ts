import { activationFunction, activationKinds, type ActivationKind } from '../numerics/activation-functions.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Gated linear unit: `y = kind(gate) * up` (SwiGLU, GeGLU, ReGLU). Source: arXiv:2002.05202 eq. 5. With a count, such as
 * the number of active neurons of `sparse-matmul`, only columns below it are computed; the others are 0.
 *
 * Shapes: gate, up and y `[...]` f32, count `[1]` i32 up to the last axis; y may take the memory of gate.
 */
export const glu: OpSpec = {
  name: 'glu',
  inputs: {
    gate: { dtypes: f32Only, shape: '...' },
    up: { dtypes: f32Only, shape: '...' },
    count: { dtypes: i32Only, shape: '1', optional: true },
  },
  outputs: { y: { dtypes: f32Only, shape: '...', mayAlias: 'gate' } },
  axes: {},
  attributes: { kind: { kind: 'string', values: activationKinds } },
  partition: 'tokens',
  work: '8 * gate.numElements',
  kernelFile: 'pointwise',
  bindReference({ inputs: { gate, up, count }, outputs: { y }, attributes }) {
    const apply = activationFunction(attributes['kind'] as ActivationKind);
    return () => {
      const numValues = gate.shape.reduce((product, dim) => product * dim, 1);
      const numColumns = gate.shape.at(-1) ?? 1;
      const numComputed = count === undefined ? numColumns : count.data[0];
      for (let i = 0; i < numValues; i++) {
        y.data[i] = i % numColumns < numComputed ? apply(gate.data[i]) * up.data[i] : 0;
      }
    };
  },
  flops: ({ gate }) => 9 * gate.reduce((product, dim) => product * dim, 1),
};
