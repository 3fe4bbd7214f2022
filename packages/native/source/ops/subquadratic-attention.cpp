/**
 * Attention to a window, globals, keys at distances 1, 2, 4, ... and landmarks (means of blocks), for causal models. All of them are
 * rows of one flash attention per tile of queries: a key at a power-of-two distance is seen by the queries of one token, a
 * landmark by the queries whose last complete block is the same. Logical slot `j` of a sequence holds position `j` or is empty.
 */
#include "../generated/operands/subquadratic-attention.h"
#include "../attention/flash-attention.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
namespace op = operands::subquadratic_attention;

struct Operands : KvCache {
  /** Keys up to this distance are in the window; local + 1 does not overflow. */
  int32_t local = least(op::attributes::local(record), INT32_MAX - 1);
  int32_t landmarks = op::attributes::landmarks(record);
  bool logStride = op::attributes::logStride(record);
  /** Tokens of a summary; a block of the cache has one or several. */
  int32_t partSize = landmarks == op::LANDMARKS_OFF ? blockSize : blockSize / op::keyMeans::numParts(record);
  /** log(partSize), or 0. */
  float bias = op::attributes::logCount(record) ? static_cast<float>(log(static_cast<double>(partSize))) : 0;
  const float *keyMeans = op::keyMeans::address(record), *valueMeans = op::valueMeans::address(record);
  const int32_t* meanCounts = op::meanCounts::address(record);
  int32_t numGlobals = 0;
  int32_t globals[MAX_GLOBALS];

  explicit Operands(const Record& from) : KvCache(from) {
    for (int32_t i = 0; i < MAX_GLOBALS; i++) {
      const int32_t global = op::attributes::global(record, i);
      if (global >= 0 && !isGlobal(global)) globals[numGlobals++] = global;
    }
  }

  bool isGlobal(int32_t position) const {
    for (int32_t i = 0; i < numGlobals; i++) {
      if (globals[i] == position) return true;
    }
    return false;
  }
  bool isStride(int32_t distance) const { return logStride && (distance & (distance - 1)) == 0; }
  /** The last part that is complete at a position; -1 when there is none. */
  int32_t pivotOf(int32_t position) const { return (position + 1) / partSize - 1; }

  /** Whether a query sees a part as a landmark: unless, in the mode `outside-window`, all of its tokens are keys already. */
  bool seesLandmark(int32_t position, int32_t part) const {
    if (landmarks != op::LANDMARKS_OUTSIDE_WINDOW) return true;
    for (int32_t j = part * partSize; j < (part + 1) * partSize; j++) {
      if (position - j <= local) return false;
      if (!isStride(position - j) && !isGlobal(j)) return true;
    }
    return false;
  }
};

/** Rows that a tile attends to, in steps of STEP_ROWS; `flush` is called with the rows of a step in scratch. */
template <class F> class Rows {
 public:
  Rows(const Tile& tile, const TileScratch& scratch, F flush) : tile_(tile), scratch_(scratch), flush_(flush) {}

  /** Adds the keys of positions `[begin, end)` that the cache holds, each visible at distances of `low` to `high`. */
  void addRun(int32_t begin, int32_t end, int32_t low, int32_t high) {
    const KvCache& cache = scratch_.cache;
    if (begin < 0) begin = 0;
    end = least(end, tile_.context);
    while (begin < end) {
      const int32_t index = cache.slotIndex(tile_.sequence, begin);
      const int32_t limit = cache.slotsInBlock(begin, least(end - begin, STEP_ROWS - count_));
      int32_t count = 0;
      for (; count < limit && cache.slotPositions[index + count] == begin + count; count++) {
        visibility_[count_ + count] = {begin + count, low, high, 0};
      }
      cache.keys.copy(index, tile_.kvHead, count, keyAt(count_));
      cache.values.copy(index, tile_.kvHead, count, valueAt(count_));
      grow(count);
      begin += count < limit ? count + 1 : count;
    }
  }

  /** Adds a mean that the positions `[begin, end)` see. */
  void addMean(const float* key, const float* value, int32_t begin, int32_t end, float bias) {
    memcpy(keyAt(count_), key, scratch_.headDim * sizeof(float));
    memcpy(valueAt(count_), value, scratch_.valueDim * sizeof(float));
    visibility_[count_] = {begin, 0, end - begin - 1, bias};
    grow(1);
  }

  void flush() {
    if (count_ > 0) flush_(count_, visibility_);
    count_ = 0;
  }

 private:
  float* keyAt(int32_t row) const { return scratch_.keys + row * scratch_.headDim; }
  float* valueAt(int32_t row) const { return scratch_.values + row * scratch_.valueDim; }

  void grow(int32_t count) {
    count_ += count;
    if (count_ == STEP_ROWS) flush();
  }

  const Tile& tile_;
  const TileScratch& scratch_;
  F flush_;
  Visibility visibility_[STEP_ROWS];
  int32_t count_ = 0;
};

/** Distinct positions of the tokens of a tile, in order. */
struct Positions {
  int32_t at[MAX_LANES];
  int32_t count = 0;

  Positions(const KvCache& cache, const Tile& tile) {
    for (int32_t t = tile.firstToken; t < tile.lastToken; t++) {
      int32_t i = count - 1;
      while (i >= 0 && at[i] != cache.positions[t]) i--;
      if (i < 0) at[count++] = cache.positions[t];
    }
  }
};

/** Adds globals and, for each position, the keys at power-of-two distances, beyond the windows. */
template <class ROWS> void addEdges(const Operands& from, const Positions& positions, ROWS& rows) {
  for (int32_t i = 0; i < from.numGlobals; i++) { rows.addRun(from.globals[i], from.globals[i] + 1, from.local + 1, INT32_MAX); }
  if (!from.logStride) return;
  int64_t stride = 1;
  while (stride <= from.local) stride *= 2;
  for (; stride <= INT32_MAX; stride *= 2) {
    const int32_t distance = static_cast<int32_t>(stride);
    bool isBeyond = true;
    for (int32_t i = 0; i < positions.count; i++) {
      const int32_t position = positions.at[i] - distance;
      if (position < 0) continue;
      isBeyond = false;
      if (!from.isGlobal(position)) rows.addRun(position, position + 1, distance, distance);
    }
    if (isBeyond) return;
  }
}

/** Adds a landmark for each run of consecutive positions in `[begin, end)` that see it. */
template <class ROWS>
void addLandmark(const Operands& from, const Tile& tile, int32_t part, int32_t begin, int32_t end, ROWS& rows) {
  const int32_t first = part * from.partSize;
  if (part < 0 || first + from.partSize > tile.context) return;
  const size_t summary = from.summaryRow(from.slotIndex(tile.sequence, first), from.partSize, tile.kvHead);
  if (from.meanCounts[summary] != from.partSize) return;
  for (int32_t at = begin; at < end; at++) {
    const int32_t start = at;
    while (at < end && from.seesLandmark(at, part)) at++;
    if (at == start) continue;
    rows.addMean(from.keyMeans + summary * from.headDim, from.valueMeans + summary * from.valueDim, start, at, from.bias);
  }
}

/** Adds the landmarks of all positions: the last complete part, and those at distances of 1, 2, 4, ... parts. */
template <class ROWS> void addLandmarks(const Operands& from, const Tile& tile, const Positions& positions, ROWS& rows) {
  for (int32_t i = 0, next; i < positions.count; i = next) {
    const int32_t pivot = from.pivotOf(positions.at[i]);
    next = i + 1;
    while (next < positions.count && positions.at[next] == positions.at[next - 1] + 1 && from.pivotOf(positions.at[next]) == pivot) next++;
    const int32_t begin = positions.at[i], end = positions.at[next - 1] + 1;
    for (int32_t distance = 0; distance <= pivot; distance = distance == 0 ? 1 : 2 * distance) {
      if (distance > 1 && !from.logStride) break;
      addLandmark(from, tile, pivot - distance, begin, end, rows);
    }
  }
}

/** Adds all rows of a tile: first the keys of a window that reaches back from each position, every key once. */
template <class FLASH, class ROWS> void addRows(const Operands& from, const FLASH& flash, ROWS& rows) {
  const Positions positions(from, flash.tile);
  const int32_t lowest = flash.lowestPosition();
  rows.addRun(from.local > lowest ? 0 : lowest - from.local, flash.highestPosition() + 1, 0, from.local);
  addEdges(from, positions, rows);
  if (from.landmarks != op::LANDMARKS_OFF) addLandmarks(from, flash.tile, positions, rows);
  rows.flush();
}

/** Attends to all rows of a tile; `pairs` counts those that each of its tokens sees, or is null. */
template <class FLASH> void attendTile(const Operands& from, FLASH& flash, float* y, int32_t* pairs) {
  const Tile& tile = flash.tile;
  const TileScratch& scratch = flash.scratch;
  for (int32_t t = tile.firstToken; pairs != nullptr && t < tile.lastToken; t++) pairs[t] = 0;
  Rows rows(tile, scratch, [&](int32_t count, const Visibility* visibility) {
    const StoredRows keys = floatRows(scratch.keys, from.headDim), values = floatRows(scratch.values, from.valueDim);
    flash.attendRows(keys, values, count, visibility, Prefetch(), Prefetch());
    for (int32_t t = tile.firstToken; pairs != nullptr && t < tile.lastToken; t++) {
      for (int32_t i = 0; i < count; i++) pairs[t] += visibility[i].isSeenFrom(from.positions[t]) ? 1 : 0;
    }
  });
  addRows(from, flash, rows);
  writeLanes(flash, {nullptr, nullptr, y}, [&](int32_t lane, ExactSoftmax& exact) {
    Rows again(tile, scratch, [&](int32_t count, const Visibility* visibility) {
      for (int32_t i = 0; i < count; i++) {
        if (!visibility[i].isSeenFrom(flash.positionOf(lane))) continue;
        exact.add(scratch.keys + i * from.headDim, scratch.values + i * from.valueDim, visibility[i].bias);
      }
    });
    addRows(from, flash, again);
  });
}

void run(const Record& record, Threads& threads) {
  const Operands from(record);
  ScratchArrays arrays(record.localScratch());
  const TileScratch scratch{from, arrays};
  float* y = op::y::address(record);
  int32_t* pairs = op::pairs::address(record);
  forEachTile(scratch, 1, threads, [&](auto flash) { attendTile(from, flash, y, flash.tile.firstHead == 0 ? pairs : nullptr); });
}

/** Causal models without a sliding window; masses are left to the interpreter. */
bool supports(const Record& record) {
  return hasRowTypes(record) && op::attributes::causal(record) && op::attributes::window(record) == 0 && !op::mass::isPresent(record);
}
}  // namespace

extern const Kernel subquadraticAttentionKernel = {supports, noScratch, tileScratchBytes, run};
}  // namespace WINNOW_NAMESPACE
