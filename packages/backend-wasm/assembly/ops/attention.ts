/** Scaled dot-product attention over the paged cache. Threads split the contexts of few tokens (split-KV) and merge their states. */
import { flashAttention } from '../attention/flash-attention';
import * as cache from '../attention/kv-cache-view';
import { finishState, mergeState, openState } from '../attention/partial-states';
import * as op from '../operands/attention.generated';
import { floatAt } from '../runtime/arrays';
import { MAX_INVARIANT_TOKENS, MAX_SPLITS, MIN_SPLIT } from '../runtime/layout.generated';
import { sharedScratch } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';

export function attention(): void {
  const rows = op.q.numTokens * op.q.numHeads;
  const numSplits = countSplits();
  const sinks = op.sinkLogits.isPresent ? op.sinkLogits.address : 0;
  const bias = op.positionBias.isPresent ? op.positionBias.address : 0;
  const numBiases = bias === 0 ? 0 : op.positionBias.numBiases;
  if (numSplits === 1) return flashAttention(0, 0, op.y.address, 1, true, sinks, bias, numBiases);
  const m = sharedScratch();
  const l = m + ((<usize>(numSplits * rows)) << 2);
  const o = l + ((<usize>(numSplits * rows)) << 2);
  flashAttention(m, l, o, numSplits, true, sinks, bias, numBiases);
  phaseBarrier();
  for (let row = nextItems(1); row < rows; row = nextItems(1)) {
    openState(m, l, o, row, cache.valueDim);
    cache.cutContext(row / op.q.numHeads);
    for (let split = 1; split < cache.ownSplits; split++) mergeState(m, l, o, split * rows + row);
    const at = <usize>row * cache.valueStride;
    finishState(floatAt(l, row), o + at, op.y.address + at, cache.valueDim);
  }
}

/** Maximum number of splits of a token; steps of many tokens need none. */
function countSplits(): i32 {
  cache.enterCache();
  let splits = 1;
  for (let t = 0; t < op.q.numTokens && op.q.numTokens <= MAX_INVARIANT_TOKENS; t++) {
    cache.cutContext(t);
    splits = max<i32>(splits, cache.ownSplits);
  }
  return splits;
}

export { layFlashAttention as attentionScratch } from '../attention/flash-attention';

/** Partial states of the splits of a long context. */
export function attentionSharedBytes(): u64 {
  const rows = <u64>min<i32>(op.q.numTokens, MAX_INVARIANT_TOKENS) * op.q.numHeads;
  const splits = min<i32>(MAX_SPLITS, (op.blockTable.maxBlocks * op.keys.blockSize) / MIN_SPLIT);
  return splits < 2 ? 0 : <u64>splits * rows * (op.values.valueDim + 2) * 4;
}
