import { ArgumentError } from '@winnow/tensor';
import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/** Bounds values smoothly: `y = cap * tanh(x / cap)`. Shapes: x and y `[...]` f32; y may take the memory of x. */
export const softCap: OpSpec = {
  name: 'soft-cap',
  inputs: { x: { dtypes: f32Only, shape: '...' } },
  outputs: { y: { dtypes: f32Only, shape: '...', mayAlias: 'x' } },
  axes: {},
  attributes: { cap: { kind: 'number' } },
  partition: 'tokens',
  kernelFile: 'pointwise',
  check(_shapes, { cap }) {
    if (!(Number(cap) > 0)) {
      throw new ArgumentError({ argument: 'soft-cap: cap', expected: 'a positive number', actual: String(cap) });
    }
  },
  bindReference({ inputs: { x }, outputs: { y }, attributes }) {
    const cap = attributes['cap'] as number;
    return () => {
      const numValues = x.shape.reduce((product, dim) => product * dim, 1);
      for (let i = 0; i < numValues; i++) y.data[i] = cap * Math.tanh(x.data[i] / cap);
    };
  },
  flops: ({ x }) => 6 * x.reduce((product, dim) => product * dim, 1),
};
