import { activationFunction, activationKinds, type ActivationKind } from '../numerics/activation-functions.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * A pointwise activation: `y = kind(x)`. With a count, such as the number of active neurons of `sparse-matmul`, only
 * columns below it are computed; the others are 0.
 *
 * Shapes: x and y `[...]` f32, count `[1]` i32 up to the last axis; y may take the memory of x.
 */
export const activation: OpSpec = {
  name: 'activation',
  inputs: { x: { dtypes: f32Only, shape: '...' }, count: { dtypes: i32Only, shape: '1', optional: true } },
  outputs: { y: { dtypes: f32Only, shape: '...', mayAlias: 'x' } },
  axes: {},
  attributes: { kind: { kind: 'string', values: activationKinds } },
  partition: 'tokens',
  work: '2 * x.numElements',
  kernelFile: 'pointwise',
  bindReference({ inputs: { x, count }, outputs: { y }, attributes }) {
    const apply = activationFunction(attributes['kind'] as ActivationKind);
    return () => {
      const numValues = x.shape.reduce((product, dim) => product * dim, 1);
      const numColumns = x.shape.at(-1) ?? 1;
      const numComputed = count === undefined ? numColumns : count.data[0];
      for (let i = 0; i < numValues; i++) y.data[i] = i % numColumns < numComputed ? apply(x.data[i]) : 0;
    };
  },
  flops: ({ x }) => 8 * x.reduce((product, dim) => product * dim, 1),
};
