/**
 * Dense flash attention over a paged cache: online softmax over chunks of keys. All query heads of a KV head, and up to MAX_LANES
 * queries, are computed together, so that each K and V row is read and dequantized once.
 */
#pragma once
#include "flash-tile.h"

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
 * Writes the results of all lanes of a tile. Infinities or NaN of keys that a lane does not see may have leaked into its sums: then
 * `addKeys` adds those that it sees, and no others, to an exact softmax.
 */
template <class FLASH, class F> void writeLanes(const FLASH& flash, const FlashOutput& to, F addKeys) {
  const KvCache& cache = flash.cache;
  const bool isFinal = to.maxima == nullptr;
  for (int32_t lane = 0; lane < flash.tile.numLanes(); lane++) {
    const size_t row = flash.rowOf(lane) + static_cast<size_t>(flash.tile.split) * cache.numTokens * cache.numHeads;
    float* values = to.values + row * cache.valueDim;
    float maximum = flash.maximumOf(lane), sum = flash.sumOf(lane);
    if (!flash.writeLane(lane, !isFinal ? 1 : sum == 0 ? 0 : 1 / sum, values)) {
      ExactSoftmax exact(cache, flash.queryOf(lane), flash.scratch.exact, flash.startOf(lane));
      addKeys(lane, exact);
      exact.write(&maximum, &sum, values, isFinal);
    }
    if (isFinal) continue;
    to.maxima[row] = maximum;
    to.sums[row] = sum;
  }
}

/**
 * Computes the share of a thread, with every context cut into `numSplits` splits or, with `cutsByToken`, as `cutContext` does it.
 * @param scratch as `tileScratchBytes` says
 */
void flashAttention(const KvCache& cache, const FlashOutput& to, int32_t numSplits, bool cutsByToken, uint8_t* scratch, Threads& threads);
}  // namespace WINNOW_NAMESPACE
