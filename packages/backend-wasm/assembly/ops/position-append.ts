import { positions, slotPositions, slots } from '../operands/position-append.generated';

export function positionAppend(): void {
  const list = slots.address;
  const from = positions.address;
  const target = slotPositions.address;
  const numTokens = slots.numTokens;
  for (let t: usize = 0; t < <usize>numTokens; t++) {
    const slot = load<i32>(list + (t << 2));
    if (slot >= 0) store<i32>(target + ((<usize>slot) << 2), load<i32>(from + (t << 2)));
  }
}
