#include "flash-tile.h"

namespace WINNOW_NAMESPACE {

template <class P>
void FlashTile<P>::attendRows(const float* keys, const float* values, int32_t count, const Visibility* visibility, Prefetch aheadKeys,
                              Prefetch aheadValues) {
  const int32_t headDim = cache_.headDim, valueDim = cache_.valueDim;
  aheadKeys.spread(gemmSteps<P>(count, headDim));
  aheadValues.spread(gemmSteps<P>(valueDim, count));
  float* logits = scratch_.logits;
  for (int32_t lane = 0; lane < numPanels_ * P::QUERIES; lane += P::QUERIES) {
    gemmRows<P, false>(logits, keys, count, headDim, scratch_.queries + lane * headDim, headDim, nullptr, aheadKeys);
    if (cache_.softCap != 0) capRows<P>(logits, count, cache_.softCap);
    for (int32_t i = 0; visibility != nullptr && i < count; i++) hideRow(lane, i, visibility[i]);
    softmaxRows<P>(logits, count, scratch_.maxima + lane, scratch_.sums + lane, scratch_.factors);
    gemmRows<P, true>(scratch_.outputs + lane * valueDim, values, valueDim, valueDim, logits, count, scratch_.factors, aheadValues);
    aheadKeys.stop();
    aheadValues.stop();
  }
}

template <class P> void FlashTile<P>::hideRow(int32_t lane, int32_t row, const Visibility& seen) const {
  const bool isSeen = lowest_ - seen.position >= seen.low && highest_ - seen.position <= seen.high;
  if (isSeen && seen.bias == 0) return;
  maskRow<P>(scratch_.logits + row * P::QUERIES, scratch_.positions + lane, seen.position, seen.low, seen.high, seen.bias);
}

// the panels that `openTile` chooses from
template class FlashTile<Panel<4, 1>>;
template class FlashTile<Panel<LANES, 1>>;
template class FlashTile<Panel<LANES, 2>>;
#if defined(__AVX512F__)
template class FlashTile<Panel<8, 1>>;
#endif

}  // namespace WINNOW_NAMESPACE
