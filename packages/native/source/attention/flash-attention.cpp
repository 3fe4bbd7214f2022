#include "flash-attention.h"
#include "slot-chunks.h"

namespace WINNOW_NAMESPACE {

namespace {

/** Writes the partial state of a lane over the slots `[begin, end)`, or its normalized output. */
template <class FLASH>
void writeState(const KvCache& cache, const Tile& tile, const TileScratch& scratch, const FLASH& flash, const FlashOutput& to,
                int32_t lane, int32_t begin, int32_t end) {
  const size_t row = flash.rowOf(lane) + static_cast<size_t>(tile.split) * cache.numTokens * cache.numHeads;
  float* values = to.values + row * cache.valueDim;
  const bool isFinal = to.maxima == nullptr;
  float maximum = flash.maximumOf(lane);
  float sum = flash.sumOf(lane);
  if (!flash.writeLane(lane, !isFinal ? 1 : sum == 0 ? 0 : 1 / sum, values)) {
    // infinities or NaN of hidden slots may have leaked into the sums: only visible slots are read again
    ExactSoftmax exact(cache, flash.queryOf(lane), scratch.exact);
    addSlots(cache, tile, scratch, flash.positionOf(lane), begin, end, exact);
    exact.write(&maximum, &sum, values, isFinal);
  }
  if (isFinal) return;
  to.maxima[row] = maximum;
  to.sums[row] = sum;
}

}  // namespace

void flashAttention(const KvCache& cache, const FlashOutput& output, int32_t numSplits, bool isAligned, uint8_t* base, Threads& threads) {
  const TileScratch scratch(cache, base);
  forEachTile(cache, numSplits, threads, [&](const Tile& tile) {
    int32_t length = (tile.context + numSplits - 1) / numSplits;
    if (isAligned) length = (length + STEP_ROWS - 1) & -STEP_ROWS;
    const int32_t begin = least(tile.context, tile.split * length);
    const int32_t end = least(tile.context, begin + length);
    openTile(cache, tile, scratch, [&](auto flash) {
      attendSlots(cache, tile, scratch, flash, begin, end);
      for (int32_t lane = 0; lane < tile.numLanes(); lane++) writeState(cache, tile, scratch, flash, output, lane, begin, end);
    });
  });
}

}  // namespace WINNOW_NAMESPACE
