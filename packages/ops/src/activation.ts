import { activationFunction, activationKinds, type ActivationKind } from './activation-functions.js';
import { f32Only } from './dtypes.js';
import type { OpSpec } from './op-spec.js';

/** A pointwise non-linearity: `y = kind(x)`. Shapes: x and y `[...]` f32; y may take the memory of x. */
export const activation: OpSpec = {
  name: 'activation',
  inputs: { x: { dtypes: f32Only, shape: '...' } },
  outputs: { y: { dtypes: f32Only, shape: '...', mayAlias: 'x' } },
  attributes: { kind: { kind: 'string', values: activationKinds } },
  partition: 'tokens',
  bindReference({ inputs: { x }, outputs: { y }, attributes }) {
    const apply = activationFunction(attributes['kind'] as ActivationKind);
    return () => {
      const numValues = x.shape.reduce((product, dim) => product * dim, 1);
      for (let i = 0; i < numValues; i++) y.data[i] = apply(x.data[i]);
    };
  },
  flops: ({ x }) => 8 * x.reduce((product, dim) => product * dim, 1),
};
