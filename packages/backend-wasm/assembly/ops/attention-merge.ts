/** Merges partial states of split-KV attention. */
import { mergeState, openState } from '../attention/partial-states';
import * as op from '../operands/attention-merge.generated';
import { setFloat } from '../runtime/arrays';
import { nextItems } from '../runtime/threads';

/** Work items: rows (token, head). */
export function attentionMerge(): void {
  const rows = op.m.numTokens * op.m.numHeads;
  const valueBytes = (<usize>op.o.valueDim) << 2;
  for (let row = nextItems(1); row < rows; row = nextItems(1)) {
    setFloat(op.mOut.address, row, -Infinity);
    setFloat(op.lOut.address, row, 0);
    memory.fill(op.oOut.address + <usize>row * valueBytes, 0, valueBytes);
    openState(op.mOut.address, op.lOut.address, op.oOut.address, row, op.o.valueDim);
    const end = op.m.numParts * rows;
    for (let at = row; at < end; at += rows) mergeState(op.m.address, op.l.address, op.o.address, at);
    const end2 = op.m2.isPresent ? op.m2.numParts2 * rows : 0;
    for (let at = row; at < end2; at += rows) mergeState(op.m2.address, op.l2.address, op.o2.address, at);
  }
}
