/**
 * Dense flash attention over a paged cache: online softmax over chunks of keys. All query heads of a KV head, and up to MAX_LANES
 * queries, are computed together, so that each K and V row is read and dequantized once.
 */
#pragma once
#include "../runtime/threads.h"
#include "kv-cache.h"

namespace WINNOW_NAMESPACE {

/** Where the results go. */
struct FlashOutput {
  /** Partial states `[splits, numTokens, numHeads]`; null: outputs are normalized. */
  float* maxima;
  float* sums;
  /** Weighted sums of values `[splits, numTokens, numHeads, valueDim]`. */
  float* values;
};

/**
 * Computes the share of a thread, with every context cut into `numSplits` splits; `isAligned` rounds their length up to whole steps.
 * @param scratch as `tileScratchBytes` says
 */
void flashAttention(const KvCache& cache, const FlashOutput& output, int32_t numSplits, bool isAligned, uint8_t* scratch, Threads& threads);

}  // namespace WINNOW_NAMESPACE
