#include "flash-attention.h"
#include "slot-chunks.h"

namespace WINNOW_NAMESPACE {
void flashAttention(const KvCache& cache, const FlashOutput& output, int32_t numSplits, bool cutsByToken, uint8_t* base, Threads& threads) {
  ScratchArrays arrays(base);
  const TileScratch scratch{cache, arrays};
  forEachTile(scratch, numSplits, threads, [&](auto flash) {
    const int32_t context = flash.tile.context, even = (context + numSplits - 1) / numSplits;
    const bool isCut = cutsByToken && numSplits > 1;
    const ContextCut cut = isCut ? cache.cutContext(flash.tile.lastToken - 1) : ContextCut{context, numSplits, even};
    if (flash.tile.split >= cut.splits) return;
    const int32_t begin = least(cut.context, flash.tile.split * cut.slots), end = least(cut.context, begin + cut.slots);
    attendSlots(cache, flash, begin, end);
    writeLanes(flash, output, [&](int32_t lane, ExactSoftmax& exact) { addSlots(cache, flash, lane, begin, end, exact); });
  });
}
}  // namespace WINNOW_NAMESPACE
