import { attributes, positions, y } from '../operands/clamp-positions.generated';

export function clampPositions(): void {
  const limit = attributes.limit;
  const numTokens = positions.numTokens;
  for (let t: usize = 0; t < <usize>numTokens; t++) {
    store<i32>(y.address + (t << 2), min<i32>(load<i32>(positions.address + (t << 2)), limit));
  }
}
