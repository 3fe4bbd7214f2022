/**
 * Attention to a local window and to sinks, the first positions before the window, which may have queries of their own. Slots may
 * hold positions in any order. Records with masses are left to the interpreter.
 */
#include "../generated/operands/streaming-attention.h"
#include "../attention/slot-chunks.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {

namespace {

namespace op = operands::streaming_attention;

/** The cache as queries see it through the window, and before it. */
struct Views {
  KvCache window, sinks;
  bool hasSinks;
  const float* sinkQueries;

  explicit Views(const Record& record) : window(record), sinks(record) {
    const int32_t local = op::attributes::local(record);
    hasSinks = op::attributes::sinks(record) > 0 && sinks.maxDistance >= local;
    window.maxDistance = least(local - 1, window.maxDistance);
    sinks.minDistance = local;
    sinks.limit = op::attributes::sinks(record);
    sinkQueries = op::sinkQ::isPresent(record) ? op::sinkQ::address(record) : sinks.queries;
  }

  /** Number of keys that a token sees. */
  int32_t countKeys(int32_t position, const Tile& tile) const {
    int32_t numKeys = 0;
    for (int32_t slot = 0; slot < tile.context;) {
      const int32_t* positions = window.slotPositions + window.slotIndex(tile.sequence, slot);
      const int32_t count = window.slotsInBlock(slot, tile.context - slot);
      for (int32_t i = 0; i < count; i++) {
        numKeys += window.isVisible(position, positions[i]) | (hasSinks & sinks.isVisible(position, positions[i]));
      }
      slot += count;
    }
    return numKeys;
  }
};

/** Recomputes a lane from the keys that it sees: infinities or NaN of others may have leaked into its sums. */
void attendExactly(const Views& views, const Tile& tile, const TileScratch& scratch, int32_t position, size_t row, float* y) {
  const int32_t headDim = views.window.headDim;
  ExactSoftmax exact(views.window, views.window.queryAt(row), scratch.exact);
  addSlots(views.window, tile, scratch, position, 0, tile.context, exact);
  exact.setQuery(views.sinkQueries + row * headDim);
  if (views.hasSinks) addSlots(views.sinks, tile, scratch, position, 0, tile.context, exact);
  float maximum, sum;
  exact.write(&maximum, &sum, y, true);
}

template <class FLASH> void attendTile(const Views& views, const Tile& tile, const TileScratch& scratch, FLASH& flash, float* y,
                                       int32_t* pairs) {
  attendSlots(views.window, tile, scratch, flash, 0, tile.context);
  if (views.hasSinks) {
    if (views.sinkQueries != views.sinks.queries) flash.loadQueries(views.sinkQueries);
    attendSlots(views.sinks, tile, scratch, flash, 0, tile.context);
  }
  for (int32_t lane = 0; lane < tile.numLanes(); lane++) {
    float* to = y + flash.rowOf(lane) * views.window.valueDim;
    const float sum = flash.sumOf(lane);
    if (flash.writeLane(lane, sum == 0 ? 0 : 1 / sum, to)) continue;
    attendExactly(views, tile, scratch, flash.positionOf(lane), flash.rowOf(lane), to);
  }
  for (int32_t t = tile.firstToken; tile.firstHead == 0 && t < tile.lastToken; t++) {
    pairs[t] = views.countKeys(views.window.positions[t], tile);
  }
}

void run(const Record& record, Threads& threads) {
  const Views views(record);
  const TileScratch scratch(views.window, record.localScratch());
  float* y = op::y::address(record);
  int32_t* pairs = op::pairs::address(record);
  forEachTile(views.window, 1, threads, [&](const Tile& tile) {
    openTile(views.window, tile, scratch, [&](auto flash) { attendTile(views, tile, scratch, flash, y, pairs); });
  });
}

bool supports(const Record& record) { return hasRowTypes(record) && !op::mass::isPresent(record); }

uint64_t sharedBytes(const Record&) { return 0; }

}  // namespace

extern const Kernel streamingAttentionKernel;
const Kernel streamingAttentionKernel = {supports, sharedBytes, tileScratchBytes, run};

}  // namespace WINNOW_NAMESPACE
