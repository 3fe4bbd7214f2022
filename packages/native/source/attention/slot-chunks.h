/** Attention of a tile to all slots of a context that its queries may see, chunk by chunk. */
#pragma once
#include "flash-tile.h"

namespace WINNOW_NAMESPACE {

/** Consecutive slots of a block; `positions` is null when every query sees all of them, so that they need no mask. */
struct Chunk {
  int32_t index, count;
  const int32_t* positions;
};

/** The chunks of the logical slots `[begin, end)` that any query of a tile may see. */
template <class FLASH> class Chunks {
 public:
  Chunks(const KvCache& cache, const Tile& tile, const FLASH& flash, int32_t begin, int32_t end)
      : cache_(cache), tile_(tile), lowest_(flash.lowestPosition()), highest_(flash.highestPosition()), next_(begin), end_(end) {}

  /** The next chunk; empty after the last one. */
  Chunk next() {
    while (next_ < end_) {
      const int32_t index = cache_.slotIndex(tile_.sequence, next_);
      const int32_t count = cache_.slotsInBlock(next_, least(STEP_ROWS, end_ - next_));
      const int32_t* positions = cache_.slotPositions + index;
      next_ += count;
      // as unsigned numbers, the negative positions of empty slots are the largest
      uint32_t low = UINT32_MAX, top = 0;
      int32_t high = -1;
      for (int32_t i = 0; i < count; i++) {
        const uint32_t position = static_cast<uint32_t>(positions[i]);
        low = position < low ? position : low;
        top = position > top ? position : top;
        high = positions[i] > high ? positions[i] : high;
      }
      if (high < 0 || low >= static_cast<uint32_t>(cache_.limit)) continue;
      const int32_t farthest = lowest_ - high;
      const int32_t nearest = highest_ - static_cast<int32_t>(low);
      if (farthest > cache_.maxDistance || nearest < cache_.minDistance) continue;
      const bool isSeen = top < static_cast<uint32_t>(cache_.limit) && farthest >= cache_.minDistance && nearest <= cache_.maxDistance;
      return {index, count, isSeen ? nullptr : positions};
    }
    return {0, 0, nullptr};
  }

 private:
  const KvCache& cache_;
  const Tile& tile_;
  int32_t lowest_, highest_, next_, end_;
};

/** Who sees the rows of a chunk; empty slots and positions from the limit on are seen by no query. */
inline void findVisibility(const KvCache& cache, const Chunk& chunk, Visibility* to) {
  for (int32_t i = 0; i < chunk.count; i++) {
    const int32_t position = chunk.positions[i];
    // no distance is at least 1 and at most 0
    const bool isHidden = position < 0 || position >= cache.limit;
    to[i] = isHidden ? Visibility{0, 1, 0, 0} : Visibility{position, cache.minDistance, cache.maxDistance, 0};
  }
}

/** Attends to the logical slots `[begin, end)`. */
template <class FLASH>
void attendSlots(const KvCache& cache, const Tile& tile, const TileScratch& scratch, FLASH& flash, int32_t begin, int32_t end) {
  Chunks<FLASH> chunks(cache, tile, flash, begin, end);
  Visibility visibility[STEP_ROWS];
  for (Chunk next = chunks.next(); next.count > 0;) {
    const Chunk chunk = next;
    next = chunks.next();
    if (chunk.positions != nullptr) findVisibility(cache, chunk, visibility);
    flash.attendRows(cache.keysOf(chunk.index, tile.kvHead, chunk.count, scratch.keys),
                     cache.valuesOf(chunk.index, tile.kvHead, chunk.count, scratch.values), chunk.count,
                     chunk.positions == nullptr ? nullptr : visibility,
                     Prefetch(cache.keyRow(next.index, tile.kvHead), next.count * cache.keyBytes),
                     Prefetch(cache.valueRow(next.index, tile.kvHead), next.count * cache.valueBytes));
  }
}

/** Adds the slots `[begin, end)` that a lane sees to a softmax, one by one: hidden slots are never read. */
inline void addSlots(const KvCache& cache, const Tile& tile, const TileScratch& scratch, int32_t position, int32_t begin,
                     int32_t end, ExactSoftmax& exact) {
  for (int32_t slot = begin; slot < end; slot++) {
    const int32_t index = cache.slotIndex(tile.sequence, slot);
    if (!cache.isVisible(position, cache.slotPositions[index])) continue;
    exact.add(cache.keysOf(index, tile.kvHead, 1, scratch.keys), cache.valuesOf(index, tile.kvHead, 1, scratch.values), 0);
  }
}

}  // namespace WINNOW_NAMESPACE
