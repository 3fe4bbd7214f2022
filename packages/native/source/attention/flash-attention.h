/**
 * Flash attention over a paged cache: online softmax over chunks of keys. All query heads of a KV head, and up to MAX_LANES
 * queries, are computed together, so that each K and V row is read and dequantized once.
 */
#pragma once
#include "../runtime/threads.h"
#include "kv-cache.h"

namespace WINNOW_NAMESPACE {

/** Maximum number of queries in a tile. */
constexpr int32_t MAX_LANES = 64;

/** Where the results go. */
struct FlashOutput {
  /** Partial states `[splits, numTokens, numHeads]`; null: outputs are normalized. */
  float* maxima;
  float* sums;
  /** Weighted sums of values `[splits, numTokens, numHeads, valueDim]`. */
  float* values;
};

/** Bytes of scratch per thread. */
uint64_t flashScratchBytes(const KvCache& cache);

/**
 * Computes the share of a thread, with every context cut into `numSplits` splits; `isAligned` rounds their length up to whole chunks.
 * Work items: (KV head, tile of tokens, split), the last tokens first, since they see the most keys.
 */
void flashAttention(const KvCache& cache, const FlashOutput& output, int32_t numSplits, bool isAligned, uint8_t* scratch, Threads& threads);

}  // namespace WINNOW_NAMESPACE
