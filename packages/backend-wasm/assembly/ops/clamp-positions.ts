/** Clamps positions to an upper limit. */
import * as op from '../operands/clamp-positions.generated';

export function clampPositions(): void {
  const bytes = (<usize>op.positions.numTokens) << 2;
  for (let i: usize = 0; i < bytes; i += 4) {
    store<i32>(op.y.address + i, min<i32>(load<i32>(op.positions.address + i), op.attributes.limit));
  }
}
