/**
 * Attention to a local window and to sinks, the first positions before the window, which may have queries of their own. Slots may
 * hold positions in any order. Records with masses are left to the interpreter.
 */
#include "../generated/operands/streaming-attention.h"
#include "../attention/flash-attention.h"
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
    window.forParts(tile.sequence, tile.context, window.blockSize, [&](int32_t index, int32_t count) {
      const int32_t* positions = window.slotPositions + index;
      for (int32_t i = 0; i < count; i++) {
        numKeys += window.isVisible(position, positions[i]) | (hasSinks & sinks.isVisible(position, positions[i]));
      }
    });
    return numKeys;
  }
};

template <class FLASH> void attendTile(const Views& views, FLASH& flash, float* y, int32_t* pairs) {
  const Tile& tile = flash.tile;
  attendSlots(views.window, flash, 0, tile.context);
  if (views.hasSinks) {
    if (views.sinkQueries != views.sinks.queries) flash.loadQueries(views.sinkQueries);
    attendSlots(views.sinks, flash, 0, tile.context);
  }
  writeLanes(flash, {nullptr, nullptr, y}, [&](int32_t lane, ExactSoftmax& exact) {
    addSlots(views.window, flash, lane, 0, tile.context, exact);
    exact.setQuery(views.sinkQueries + flash.rowOf(lane) * views.sinks.headDim);
    if (views.hasSinks) addSlots(views.sinks, flash, lane, 0, tile.context, exact);
  });
  for (int32_t t = tile.firstToken; tile.firstHead == 0 && t < tile.lastToken; t++) {
    pairs[t] = views.countKeys(views.window.positions[t], tile);
  }
}

void run(const Record& record, Threads& threads) {
  const Views views(record);
  ScratchArrays arrays(record.localScratch());
  const TileScratch scratch{views.window, arrays};
  float* y = op::y::address(record);
  int32_t* pairs = op::pairs::address(record);
  forEachTile(scratch, 1, threads, [&](auto flash) { attendTile(views, flash, y, pairs); });
}

bool supports(const Record& record) { return hasRowTypes(record) && !op::mass::isPresent(record) && !op::sinkLogits::isPresent(record); }
}  // namespace

extern const Kernel streamingAttentionKernel = {supports, noScratch, tileScratchBytes, run};
}  // namespace WINNOW_NAMESPACE
