/** Copies the states that sequences begin with to where they leave them; fresh ones are zero. */
import { nextRun, openRuns, stateFrom, stateTo } from '../attention/state-runs';
import * as op from '../operands/state-carry.generated';

export function stateCarry(): void {
  const rowBytes = (<usize>(op.state.numHeads * op.state.stateSize)) << 2;
  openRuns(op.sequences.address, op.stateFrom.address, op.stateTo.address, op.sequences.numTokens);
  while (nextRun()) {
    const to = op.state.address + <usize>stateTo * rowBytes;
    if (stateFrom < 0) memory.fill(to, 0, rowBytes);
    else memory.copy(to, op.state.address + <usize>stateFrom * rowBytes, rowBytes);
  }
}
