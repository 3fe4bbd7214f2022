/** Partial states of split-KV attention, one for each split of the context. */
import { flashAttention } from '../attention/flash-attention';
import * as op from '../operands/attention-partial.generated';

export function attentionPartial(): void {
  flashAttention(op.m.address, op.l.address, op.o.address, op.attributes.numParts, false, 0);
}

export { layFlashAttention as attentionPartialScratch } from '../attention/flash-attention';
