/** Lists of the cache slots that a token sees, in the order of logical slots, and attention to such lists. */
#pragma once
#include "flash-tile.h"

namespace WINNOW_NAMESPACE {
/** Indices in the cache, and the positions they hold. */
struct SlotList {
  int32_t *slots, *positions;
  int32_t count = 0;
};

/** Lists the slots of the context that the token of a tile sees. */
inline void listVisible(const KvCache& cache, const Tile& tile, SlotList& list) {
  const int32_t position = cache.positions[tile.firstToken];
  list.count = 0;
  cache.forParts(tile.sequence, tile.context, cache.blockSize, [&](int32_t index, int32_t count) {
    int32_t* slots = list.slots + list.count;
    int32_t* positions = list.positions + list.count;
    const int32_t numVisible = cache.countVisible(position, index, count);
    if (numVisible == count) {
      for (int32_t i = 0; i < count; i++) slots[i] = index + i;
      memcpy(positions, cache.slotPositions + index, static_cast<size_t>(count) * 4);
    } else {
      for (int32_t i = index, at = 0; at < numVisible; i++) {
        slots[at] = i;
        positions[at] = cache.slotPositions[i];
        at += cache.isVisible(position, positions[at]) ? 1 : 0;
      }
    }
    list.count += numVisible;
  });
}

/** Number of the first of `count` listed slots that are consecutive in one block. */
inline int32_t runOf(const KvCache& cache, const int32_t* slots, int32_t count) {
  const int32_t limit = cache.slotsInBlock(slots[0], count);
  int32_t run = 1;
  while (run < limit && slots[run] == slots[0] + run) run++;
  return run;
}

/** Keys or values of `count` listed slots: as they are stored if they are one run, else as f32 in `to`. */
inline StoredRows gatherRows(const KvCache& cache, const CachedRows& from, int32_t kvHead, const int32_t* slots, int32_t count, float* to) {
  for (int32_t i = 0, run; i < count; i += run) {
    run = runOf(cache, slots + i, count - i);
    if (run == count) return from.at(slots[i], kvHead);
    from.copy(slots[i], kvHead, run, to + i * from.depth);
  }
  return floatRows(to, from.depth);
}

/** Attends to `count` listed slots, all of which every query sees. */
template <class FLASH> inline void attendList(FLASH& flash, const int32_t* slots, int32_t count) {
  const KvCache& cache = flash.cache;
  for (; count > 0; slots += STEP_ROWS, count -= STEP_ROWS) {
    const int32_t step = least(count, STEP_ROWS);
    const StoredRows keys = gatherRows(cache, cache.keys, flash.tile.kvHead, slots, step, flash.scratch.keys);
    const StoredRows values = gatherRows(cache, cache.values, flash.tile.kvHead, slots, step, flash.scratch.values);
    flash.attendRows(keys, values, step, nullptr, Prefetch(), Prefetch());
  }
}
}  // namespace WINNOW_NAMESPACE
