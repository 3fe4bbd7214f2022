import { ArgumentError } from '@winnow/tensor';
import { i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/** `y = min(positions, limit)`: remapped positions of queries. Shapes: `[T]` i32. */
export const clampPositions: OpSpec = {
  name: 'clamp-positions',
  inputs: { positions: { dtypes: i32Only, shape: 'T' } },
  outputs: { y: { dtypes: i32Only, shape: 'T' } },
  axes: { T: 'numTokens' },
  attributes: { limit: { kind: 'number', integer: true } },
  partition: 'serial',
  check(_shapes, { limit }) {
    if (Number(limit) >= 0) return;
    throw new ArgumentError({ argument: 'clamp-positions: limit', expected: '0 or more', actual: String(limit) });
  },
  bindReference({ inputs: { positions }, outputs: { y }, attributes }) {
    const limit = attributes['limit'] as number;
    return () => {
      for (let t = 0; t < y.shape[0]; t++) y.data[t] = Math.min(positions.data[t], limit);
    };
  },
  flops: () => 0,
};
