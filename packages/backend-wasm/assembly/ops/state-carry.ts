/** Copies the initial state of each sequence to the row of its final state; new sequences start from zeros. */
import { carryState, nextRun, openRuns } from '../attention/state-runs';
import * as op from '../operands/state-carry.generated';

export function stateCarry(): void {
  const rowBytes = (<usize>(op.state.numHeads * op.state.stateSize)) << 2;
  openRuns(op.sequences.address, op.stateFrom.address, op.stateTo.address, op.sequences.numTokens);
  while (nextRun()) carryState(op.state.address, rowBytes, 0, rowBytes);
}
