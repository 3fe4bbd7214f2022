/** Merges partial states of attention. */
import { mergeState } from '../attention/partial-states';
import * as op from '../operands/attention-merge.generated';
import { takeUnits } from '../runtime/threads';

/** Work items: rows (token, head). */
export function attentionMerge(): void {
  const rows = op.m.numTokens * op.m.numHeads;
  const valueBytes = (<usize>op.o.valueDim) << 2;
  for (let row = takeUnits(1); row < rows; row = takeUnits(1)) {
    store<f32>(op.mOut.address + ((<usize>row) << 2), -Infinity);
    store<f32>(op.lOut.address + ((<usize>row) << 2), 0);
    memory.fill(op.oOut.address + <usize>row * valueBytes, 0, valueBytes);
    mergeSplits(row, rows, op.m.numParts, op.m.address, op.l.address, op.o.address);
    if (op.m2.isPresent) mergeSplits(row, rows, op.m2.numParts2, op.m2.address, op.l2.address, op.o2.address);
  }
}

function mergeSplits(row: i32, rows: i32, numSplits: i32, m: usize, l: usize, o: usize): void {
  for (let split = 0; split < numSplits; split++) {
    const source = split * rows + row;
    mergeState(op.mOut.address, op.lOut.address, op.oOut.address, row, m, l, o, source, op.o.valueDim);
  }
}
