import { activationFunction, activationKinds, type ActivationKind } from './activation-functions.js';
import { f32Only } from './dtypes.js';
import type { OpSpec } from './op-spec.js';

/**
 * A gated non-linearity: `y = kind(gate) * up` (SwiGLU, GeGLU, ReGLU). Source: arXiv:2002.05202 eq. 5.
 *
 * Shapes: gate, up and y `[...]` f32; y may take the memory of gate.
 */
export const gatedActivation: OpSpec = {
  name: 'gated-activation',
  inputs: { gate: { dtypes: f32Only, shape: '...' }, up: { dtypes: f32Only, shape: '...' } },
  outputs: { y: { dtypes: f32Only, shape: '...', mayAlias: 'gate' } },
  attributes: { kind: { kind: 'string', values: activationKinds } },
  partition: 'tokens',
  bindReference({ inputs: { gate, up }, outputs: { y }, attributes }) {
    const apply = activationFunction(attributes['kind'] as ActivationKind);
    return () => {
      const numValues = gate.shape.reduce((product, dim) => product * dim, 1);
      for (let i = 0; i < numValues; i++) y.data[i] = apply(gate.data[i]) * up.data[i];
    };
  },
  flops: ({ gate }) => 9 * gate.reduce((product, dim) => product * dim, 1),
};
