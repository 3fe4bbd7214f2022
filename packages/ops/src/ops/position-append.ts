import { i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Records which absolute position each new cache slot holds: `slotPositions[slots[t]] = positions[t]`.
 *
 * Shapes: slots, positions `[T]` i32; slotPositions `[C, S]` i32 for C blocks of S slots, with -1 in empty slots.
 * A negative slot stores nothing. Slots must be within the cache, which the caller's block table guarantees.
 */
export const positionAppend: OpSpec = {
  name: 'position-append',
  inputs: { slots: { dtypes: i32Only, shape: 'T' }, positions: { dtypes: i32Only, shape: 'T' } },
  outputs: { slotPositions: { dtypes: i32Only, shape: 'C S', updates: true } },
  axes: { T: 'numTokens', C: 'numBlocks', S: 'blockSize' },
  attributes: {},
  fixedAxes: ['C', 'S'],
  partition: 'serial',
  bindReference({ inputs: { slots, positions }, outputs: { slotPositions } }) {
    return () => {
      const numTokens = slots.shape[0];
      for (let t = 0; t < numTokens; t++) {
        const slot = slots.data[t];
        if (slot >= 0) slotPositions.data[slot] = positions.data[t];
      }
    };
  },
  flops: () => 0,
  bytes: ({ slots }) => 12 * slots[0],
};
