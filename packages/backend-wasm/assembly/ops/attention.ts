/**
 * Scaled dot-product attention over the paged cache. With few tokens, threads split long contexts (split-KV) and merge the
 * partial states; the number of splits depends on shapes and context lengths alone.
 */
import { flashAttention } from '../attention/flash-attention';
import { contextOfSequence, sequenceOfToken, valueDim, valueStride } from '../attention/kv-cache-view';
import { finishState, mergeState, openState } from '../attention/partial-states';
import * as op from '../operands/attention.generated';
import { floatAt } from '../runtime/arrays';
import { sharedScratch } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';

/** Maximum number of tokens for which long contexts are split. */
const MAX_SPLIT_TOKENS: i32 = 8;
const MAX_SPLITS: i32 = 16;
/** Work items of a long context: enough for many threads, but few, because each starts by waiting for memory. */
const WORK_ITEMS: i32 = 32;
/** Minimum number of slots in a split. */
const MIN_SPLIT: i32 = 256;

export function attention(): void {
  const rows = op.q.numTokens * op.q.numHeads;
  const y = op.y.address;
  const numSplits = countSplits();
  if (numSplits === 1) {
    flashAttention(0, 0, y, 1, true);
    return;
  }
  const m = sharedScratch();
  const l = m + ((<usize>(numSplits * rows)) << 2);
  const o = l + ((<usize>(numSplits * rows)) << 2);
  flashAttention(m, l, o, numSplits, true);
  phaseBarrier();
  for (let row = nextItems(1); row < rows; row = nextItems(1)) {
    openState(m, l, o, row, valueDim);
    for (let split = 1; split < numSplits; split++) mergeState(m, l, o, split * rows + row);
    const at = <usize>row * valueStride;
    finishState(floatAt(l, row), o + at, y + at, valueDim);
  }
}

function countSplits(): i32 {
  const tokens = op.q.numTokens;
  if (tokens > MAX_SPLIT_TOKENS) return 1;
  let longest = 0;
  for (let t = 0; t < tokens; t++) longest = max<i32>(longest, contextOfSequence(sequenceOfToken(t)));
  return max<i32>(1, min<i32>(min<i32>(MAX_SPLITS, WORK_ITEMS / op.keys.numKvHeads), longest / MIN_SPLIT));
}

export { layFlashAttention as attentionScratch } from '../attention/flash-attention';

/** Partial states of the splits of a long context. */
export function attentionSharedBytes(): u64 {
  const rows = <u64>min<i32>(op.q.numTokens, MAX_SPLIT_TOKENS) * op.q.numHeads;
  return MAX_SPLITS * rows * (op.values.valueDim + 2) * 4;
}
