/** Attention of a tile to all slots of a context that its queries may see, chunk by chunk. */
#pragma once
#include "flash-tile.h"

namespace WINNOW_NAMESPACE {
/** Consecutive slots of a block; `positions` is null when every query sees all of them, so that they need no mask. */
struct Chunk {
  int32_t index, count;
  const int32_t* positions;
};

/**
 * Calls `use` with the chunks of the logical slots `[begin, end)` that any query of a tile may see, each with the next one, which is
 * empty after the last.
 */
template <class FLASH, class F> void forChunks(const KvCache& cache, const FLASH& flash, int32_t begin, int32_t end, F use) {
  Chunk previous = {0, 0, nullptr};
  for (int32_t slot = begin, count; slot < end; slot += count) {
    const int32_t index = cache.slotIndex(flash.tile.sequence, slot);
    const int32_t* positions = cache.slotPositions + index;
    count = cache.slotsInBlock(slot, least(STEP_ROWS, end - slot));
    // as unsigned numbers, the negative positions of empty slots are the largest
    uint32_t low = UINT32_MAX, top = 0;
    int32_t high = -1;
    for (int32_t i = 0; i < count; i++) {
      const uint32_t position = static_cast<uint32_t>(positions[i]);
      low = position < low ? position : low;
      top = position > top ? position : top;
      high = positions[i] > high ? positions[i] : high;
    }
    if (high < 0 || low >= static_cast<uint32_t>(cache.limit)) continue;
    const int32_t farthest = flash.lowestPosition() - high;
    const int32_t nearest = flash.highestPosition() - static_cast<int32_t>(low);
    if (farthest > cache.reachOf(flash.lowestPosition()) || nearest < cache.minDistance) continue;
    const bool isNear = farthest >= cache.minDistance && nearest <= cache.reachOf(flash.highestPosition());
    const bool isSeen = top < static_cast<uint32_t>(cache.limit) && isNear;
    const Chunk chunk = {index, count, isSeen ? nullptr : positions};
    if (previous.count > 0) use(previous, chunk);
    previous = chunk;
  }
  if (previous.count > 0) use(previous, Chunk{0, 0, nullptr});
}

/** Who sees the rows of a chunk; empty slots and positions from the limit on are seen by no query. */
inline void findVisibility(const KvCache& cache, const Chunk& chunk, Visibility* to) {
  for (int32_t i = 0; i < chunk.count; i++) {
    const int32_t position = chunk.positions[i];
    const bool isHidden = position < 0 || position >= cache.limit;
    const int32_t far = cache.maxDistance - (cache.isChunked ? cache.reachOf(position) : 0);  // the end of a chunked window
    to[i] = isHidden ? HIDDEN : Visibility{position, cache.minDistance, far, 0};
  }
}

/** Attends to the logical slots `[begin, end)`, as `cache` says who sees them. */
template <class FLASH> void attendSlots(const KvCache& cache, FLASH& flash, int32_t begin, int32_t end) {
  const int32_t kvHead = flash.tile.kvHead;
  Visibility visibility[STEP_ROWS];
  forChunks(cache, flash, begin, end, [&](const Chunk& chunk, const Chunk& next) {
    if (chunk.positions != nullptr) findVisibility(cache, chunk, visibility);
    flash.attendRows(cache.keys.at(chunk.index, kvHead), cache.values.at(chunk.index, kvHead), chunk.count,
                     chunk.positions == nullptr ? nullptr : visibility,
                     Prefetch(cache.keys.addressOf(next.index, kvHead), next.count * cache.keys.rowBytes),
                     Prefetch(cache.values.addressOf(next.index, kvHead), next.count * cache.values.rowBytes));
  });
}

/** Adds the slots `[begin, end)` that a lane sees to a softmax, one by one: hidden slots are never read. */
template <class FLASH>
void addSlots(const KvCache& cache, const FLASH& flash, int32_t lane, int32_t begin, int32_t end, ExactSoftmax& exact) {
  for (int32_t slot = begin; slot < end; slot++) {
    const int32_t index = cache.slotIndex(flash.tile.sequence, slot);
    if (!cache.isVisible(flash.positionOf(lane), cache.slotPositions[index])) continue;
    exact.add(cache.keys.floatsAt(index, flash.tile.kvHead, 1, flash.scratch.keys),
              cache.values.floatsAt(index, flash.tile.kvHead, 1, flash.scratch.values), 0);
  }
}
}  // namespace WINNOW_NAMESPACE
