#include "flash-tile.h"

namespace WINNOW_NAMESPACE {
template <class P> void FlashTile<P>::scoreRows(int32_t lane, const StoredRows& keys, int32_t count, const Prefetch& ahead) {
  P::score(scratch.logits, keys, count, cache.headDim, scratch.queries + P::placeOf(lane, cache.headDim), ahead);
  if (cache.softCap != 0) capRows<P>(scratch.logits, count, cache.softCap);
}

template <class P>
void FlashTile<P>::attendPanel(int32_t lane, const StoredRows& keys, const StoredRows& values, int32_t count, const Visibility* visibility,
                               const Prefetch& aheadKeys, const Prefetch& aheadValues) {
  const int32_t valueDim = cache.valueDim;
  float* logits = scratch.logits;
  scoreRows(lane, keys, count, aheadKeys);
  for (int32_t i = 0; visibility != nullptr && i < count; i++) hideRow(lane, i, visibility[i]);
  softmaxRows<P>(logits, count, scratch.maxima + lane, scratch.sums + lane, scratch.factors);
  P::accumulate(scratch.outputs + P::placeOf(lane, valueDim), values, count, valueDim, logits, scratch.factors, aheadValues);
}

template <class P>
void FlashTile<P>::attendRows(const StoredRows& keys, const StoredRows& values, int32_t count, const Visibility* visibility,
                              Prefetch aheadKeys, Prefetch aheadValues) {
  aheadKeys.spread(P::scoreSteps(count, cache.headDim));
  aheadValues.spread(P::accumulateSteps(count, cache.valueDim));
  const StoredRows readableKeys = readable(keys, count, cache.headDim, scratch.keys);
  const StoredRows readableValues = readable(values, count, cache.valueDim, scratch.values);
  for (int32_t lane = 0; lane < numPanels_ * P::QUERIES; lane += P::QUERIES) {
    attendPanel(lane, readableKeys, readableValues, count, visibility, aheadKeys, aheadValues);
    aheadKeys.stop();
    aheadValues.stop();
  }
}

template <class P> void FlashTile<P>::hideRow(int32_t lane, int32_t row, const Visibility& seen) const {
  const bool isSeen = lowest_ - seen.position >= seen.low && highest_ - seen.position <= seen.high;
  if (isSeen && seen.bias == 0) return;
  maskRow<P>(scratch.logits + row * P::QUERIES, scratch.positions + lane, seen.position, seen.low, seen.high, seen.bias);
}

// the panels that `openTile` chooses from
template class FlashTile<ComponentPanel<4>>;
template class FlashTile<ComponentPanel<8>>;
template class FlashTile<Panel<LANES, 1>>;
template class FlashTile<Panel<LANES, 2>>;
}  // namespace WINNOW_NAMESPACE
