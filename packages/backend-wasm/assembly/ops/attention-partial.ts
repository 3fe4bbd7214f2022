/** Partial states of attention, a split of the context each. */
import { attendSplits, enterFlashAttention, flashAttentionBytes } from '../attention/flash-attention';
import * as op from '../operands/attention-partial.generated';

export function attentionPartial(): void {
  enterFlashAttention(op.m.address, op.l.address, op.o.address);
  attendSplits(op.attributes.numParts, false);
}

export function attentionPartialLocalBytes(): u64 {
  return flashAttentionBytes();
}
