import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/** Multiplies by a constant: `y = x * factor`. Shapes: x and y `[...]` f32; y may take the memory of x. */
export const scale: OpSpec = {
  name: 'scale',
  inputs: { x: { dtypes: f32Only, shape: '...' } },
  outputs: { y: { dtypes: f32Only, shape: '...', mayAlias: 'x' } },
  axes: {},
  attributes: { factor: { kind: 'number' } },
  partition: 'tokens',
  kernelFile: 'pointwise',
  bindReference({ inputs: { x }, outputs: { y }, attributes }) {
    const factor = attributes['factor'] as number;
    return () => {
      const numValues = x.shape.reduce((product, dim) => product * dim, 1);
      for (let i = 0; i < numValues; i++) y.data[i] = x.data[i] * factor;
    };
  },
  flops: ({ x }) => x.reduce((product, dim) => product * dim, 1),
};
