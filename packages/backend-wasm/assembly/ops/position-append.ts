/** Stores the positions of tokens in their slots. */
import { positions, slotPositions, slots } from '../operands/position-append.generated';
import { intAt, setInt } from '../runtime/arrays';

export function positionAppend(): void {
  for (let t = 0; t < slots.numTokens; t++) {
    const slot = intAt(slots.address, t);
    if (slot >= 0) setInt(slotPositions.address, slot, intAt(positions.address, t));
  }
}
