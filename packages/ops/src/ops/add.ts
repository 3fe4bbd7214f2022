import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/** Residual addition: `y = a + b`. Shapes: a, b and y `[...]` f32; y may take the memory of a. */
export const add: OpSpec = {
  name: 'add',
  inputs: { a: { dtypes: f32Only, shape: '...' }, b: { dtypes: f32Only, shape: '...' } },
  outputs: { y: { dtypes: f32Only, shape: '...', mayAlias: 'a' } },
  axes: {},
  attributes: {},
  partition: 'tokens',
  kernelFile: 'pointwise',
  bindReference({ inputs: { a, b }, outputs: { y } }) {
    return () => {
      const numValues = a.shape.reduce((product, dim) => product * dim, 1);
      for (let i = 0; i < numValues; i++) y.data[i] = a.data[i] + b.data[i];
    };
  },
  flops: ({ a }) => a.reduce((product, dim) => product * dim, 1),
};
