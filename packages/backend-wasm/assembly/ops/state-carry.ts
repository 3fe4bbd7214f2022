import { sequences, state, stateFrom, stateTo } from '../operands/state-carry.generated';

export function stateCarry(): void {
  const numTokens = sequences.numTokens;
  const rowBytes = (<usize>(state.numHeads * state.stateSize)) << 2;
  for (let t = 0; t < numTokens;) {
    const sequence = load<i32>(sequences.address + ((<usize>t) << 2));
    while (t < numTokens && load<i32>(sequences.address + ((<usize>t) << 2)) === sequence) t++;
    const from = load<i32>(stateFrom.address + ((<usize>sequence) << 2));
    const to = state.address + <usize>load<i32>(stateTo.address + ((<usize>sequence) << 2)) * rowBytes;
    if (from < 0) memory.fill(to, 0, rowBytes);
    else memory.copy(to, state.address + <usize>from * rowBytes, rowBytes);
  }
}
