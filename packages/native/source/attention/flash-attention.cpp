#include "flash-attention.h"
#include "slot-chunks.h"

namespace WINNOW_NAMESPACE {
void flashAttention(const KvCache& cache, const FlashOutput& output, int32_t numSplits, bool isAligned, uint8_t* base, Threads& threads) {
  ScratchArrays arrays(base);
  const TileScratch scratch{cache, arrays};
  forEachTile(scratch, numSplits, threads, [&](auto flash) {
    const int32_t context = flash.tile.context;
    int32_t length = (context + numSplits - 1) / numSplits;
    if (isAligned) length = (length + STEP_ROWS - 1) & -STEP_ROWS;
    const int32_t begin = least(context, flash.tile.split * length);
    const int32_t end = least(context, begin + length);
    attendSlots(cache, flash, begin, end);
    writeLanes(flash, output, [&](int32_t lane, ExactSoftmax& exact) { addSlots(cache, flash, lane, begin, end, exact); });
  });
}
}  // namespace WINNOW_NAMESPACE
