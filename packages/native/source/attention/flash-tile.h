/**
 * A tile of flash attention: queries of consecutive tokens of one sequence times heads of one KV head, in panels, with the state of an
 * online softmax per query. Ops bring rows of keys and values, and say which queries see them.
 */
#pragma once
#include "../runtime/kernel.h"
#include "component-panel.h"
#include "exact-attention.h"

namespace WINNOW_NAMESPACE {
/** Maximum number of queries in a tile. */
constexpr int32_t MAX_LANES = 64;
/** Maximum number of rows in a step. */
constexpr int32_t STEP_ROWS = 64;

/** Queries at distances of `low` to `high` from a position see a row; `bias` is added to its logits. */
struct Visibility {
  int32_t position, low, high;
  float bias;

  bool isSeenFrom(int32_t query) const { return query - position >= low && query - position <= high; }
};
/** Of a row that no query sees: no distance is at least 1 and at most 0. */
constexpr Visibility HIDDEN = {0, 1, 0, 0};

/** Queries of consecutive tokens of one sequence, times heads of one KV head. */
struct Tile {
  int32_t firstToken, lastToken, firstHead, lastHead, kvHead, sequence, context;
  /** The split of the context that the tile attends to. */
  int32_t split;

  int32_t numHeads() const { return lastHead - firstHead; }
  int32_t numLanes() const { return (lastToken - firstToken) * numHeads(); }
};

/** Number of tokens in a tile. */
inline int32_t tokenTileOf(const KvCache& cache) { return MAX_LANES / least(cache.groupSize, MAX_LANES); }

/** Scratch of a tile whose steps have at most `maxRows` rows. */
struct TileScratch {
  const KvCache& cache;
  ScratchArrays& arrays;
  size_t maxRows = STEP_ROWS;
  size_t headDim = static_cast<size_t>(cache.headDim), valueDim = static_cast<size_t>(cache.valueDim);
  float* queries = arrays.take<float>(MAX_LANES * (headDim + LANES));
  float* outputs = arrays.take<float>(MAX_LANES * (valueDim + LANES));
  float *maxima = arrays.take<float>(MAX_LANES), *sums = arrays.take<float>(MAX_LANES), *factors = arrays.take<float>(MAX_LANES);
  float* logits = arrays.take<float>(maxRows * 2 * LANES);
  int32_t* positions = arrays.take<int32_t>(MAX_LANES);
  /** Rows of a step. */
  float *keys = arrays.take<float>(maxRows * headDim), *values = arrays.take<float>(maxRows * valueDim);
  /** Of `ExactSoftmax`. */
  double* exact = arrays.take<double>(valueDim);
};

/** Bytes of scratch per thread of kernels that take nothing else. */
constexpr auto tileScratchBytes = scratchBytes<KvCache, TileScratch>;

/** A tile whose lanes are in panels P. */
template <class P> class FlashTile {
 public:
  static constexpr int PANEL = P::QUERIES;
  const Tile& tile;
  const TileScratch& scratch;
  const KvCache& cache = scratch.cache;

  FlashTile(const Tile& ofTile, const TileScratch& inScratch) : tile(ofTile), scratch(inScratch) {
    numPanels_ = (tile.numLanes() + P::QUERIES - 1) / P::QUERIES;
    memset(scratch.queries, 0, numPanels_ * P::sizeOf(cache.headDim) * sizeof(float));
    for (int32_t lane = 0; lane < numPanels_ * P::QUERIES; lane++) openLane(lane);
    memset(scratch.outputs, 0, numPanels_ * P::sizeOf(cache.valueDim) * sizeof(float));
  }

  /** Replaces the queries by those at `[numTokens, numHeads, headDim]`; the states stay. */
  void loadQueries(const float* from) {
    for (int32_t lane = 0; lane < numPanels_ * P::QUERIES; lane++) loadQuery(from + rowOf(lane) * cache.headDim, lane);
  }
  /** The same from `[lanes, headDim]`. */
  void loadLanes(const float* from) {
    for (int32_t lane = 0; lane < numPanels_ * P::QUERIES; lane++) {
      loadQuery(from + static_cast<size_t>(least(lane, tile.numLanes() - 1)) * cache.headDim, lane);
    }
  }

  /** Range of the positions of the queries. */
  int32_t lowestPosition() const { return lowest_; }
  int32_t highestPosition() const { return highest_; }

  /** Row of a lane in tensors `[numTokens, numHeads]`; padding lanes repeat the last query. */
  size_t rowOf(int32_t lane) const {
    const int32_t own = least(lane, tile.numLanes() - 1);
    return static_cast<size_t>(tokenOf(own)) * cache.numHeads + tile.firstHead + own % tile.numHeads();
  }
  const float* queryOf(int32_t lane) const { return cache.queryAt(rowOf(lane)); }
  int32_t positionOf(int32_t lane) const { return scratch.positions[lane]; }
  /** The state of a lane; its maximum starts from the learned sink, a key without a value, in the first split. */
  float maximumOf(int32_t lane) const { return scratch.maxima[lane]; }
  float sumOf(int32_t lane) const { return scratch.sums[lane]; }
  float startOf(int32_t lane) const { return cache.sinks && tile.split == 0 ? cache.sinks[rowOf(lane) % cache.numHeads] : -INFINITY; }

  /** Rows that the microkernels read: as they are stored, or as f32 in `to`. */
  static StoredRows readable(const StoredRows& rows, int32_t count, int32_t depth, float* to) {
    if constexpr (P::READS_STORED) return rows;
    else return floatRows(rowsOf(rows.dtype, rows.at, to, count * depth), depth);
  }

  /** Computes the logits of a panel of lanes, from `lane` on, with `count` readable rows in scratch: `[count][PANEL]`. */
  void scoreRows(int32_t lane, const StoredRows& keys, int32_t count, const Prefetch& ahead);

  /** Attends to readable rows with one panel; leaves their weights, relative to the maxima of the lanes, in the place of logits. */
  void attendPanel(int32_t lane, const StoredRows& keys, const StoredRows& values, int32_t count, const Visibility* visibility,
                   const Prefetch& aheadKeys, const Prefetch& aheadValues);

  /** Sum over the lanes of a panel of weights times factors. */
  static float dotLanes(const float* weights, const float* factors) {
    auto sum = loadFloats<P::WIDTH>(weights) * loadFloats<P::WIDTH>(factors);
    if constexpr (P::VECTORS == 2) sum += loadFloats<P::WIDTH>(weights + P::WIDTH) * loadFloats<P::WIDTH>(factors + P::WIDTH);
    return ::WINNOW_NAMESPACE::sumOf<P::WIDTH>(sum);
  }

  /**
   * Attends to `count` rows, at most STEP_ROWS. Without `visibility` every query sees all of them. The first panel prefetches
   * the keys and values that come next.
   */
  void attendRows(const StoredRows& keys, const StoredRows& values, int32_t count, const Visibility* visibility, Prefetch aheadKeys,
                  Prefetch aheadValues);

  /** Writes the normalized output of a lane to its row of `[numTokens, numHeads, valueDim]`, and returns that row. */
  float* writeOutput(int32_t lane, float* outputs) const {
    float* y = outputs + rowOf(lane) * cache.valueDim;
    writeLane(lane, sumOf(lane) == 0 ? 0 : 1 / sumOf(lane), y);
    return y;
  }
  /** Writes the weighted sum of values of a lane times a factor; false if a result is not finite. */
  bool writeLane(int32_t lane, float factor, float* y) const {
    const float* from = scratch.outputs + P::placeOf(lane, cache.valueDim);
    float check = maximumOf(lane) == -INFINITY ? sumOf(lane) : maximumOf(lane) + sumOf(lane);
    for (int32_t i = 0; i < cache.valueDim; i++) {
      check += from[i * P::STEP];
      y[i] = from[i * P::STEP] * factor;
    }
    return fabsf(check) < INFINITY;
  }

 private:
  int32_t tokenOf(int32_t lane) const { return tile.firstToken + lane / tile.numHeads(); }

  /** Empties the state of a lane and loads its query. */
  void openLane(int32_t lane) {
    const int32_t position = cache.positions[tokenOf(least(lane, tile.numLanes() - 1))];
    scratch.positions[lane] = position;
    scratch.maxima[lane] = startOf(lane);
    scratch.sums[lane] = scratch.maxima[lane] != -INFINITY;
    if (position < lowest_) lowest_ = position;
    if (position > highest_) highest_ = position;
    loadQuery(queryOf(lane), lane);
  }

  /** Transposes the scaled query of a lane. */
  void loadQuery(const float* query, int32_t lane) {
    float* to = scratch.queries + P::placeOf(lane, cache.headDim);
    for (int32_t i = 0; i < cache.headDim; i++) to[i * P::STEP] = query[i] * cache.scale;
  }

  /** Hides a row from the lanes of a panel that do not see it. */
  void hideRow(int32_t lane, int32_t row, const Visibility& seen) const;

  int32_t numPanels_;
  int32_t lowest_ = INT32_MAX, highest_ = 0;
};

/** Calls `attend` with a FlashTile whose panels suit the number of lanes, or of those of one token if steps are batch-invariant. */
template <class F> inline void openTile(const Tile& tile, const TileScratch& scratch, F attend) {
  const int32_t numLanes = tile.numLanes();
  const bool isInvariant = scratch.cache.record.isInvariant(scratch.cache.numTokens);
  if (numLanes <= 4) return attend(FlashTile<ComponentPanel<4>>(tile, scratch));
  if ((isInvariant ? tile.numHeads() : numLanes) <= 8) return attend(FlashTile<ComponentPanel<8>>(tile, scratch));
  if ((numLanes - 1) / LANES % 2 == 0) return attend(FlashTile<Panel<LANES, 1>>(tile, scratch));
  attend(FlashTile<Panel<LANES, 2>>(tile, scratch));
}

/** Calls `attend` with the FlashTiles of tokens `[first, last)` and a KV head; tokens whose contexts are cut otherwise do not share one. */
template <class F>
inline void forTiles(const TileScratch& scratch, int32_t first, int32_t last, int32_t kvHead, int32_t split, bool cutsByToken, F attend) {
  const KvCache& cache = scratch.cache;
  const int32_t endHead = (kvHead + 1) * cache.groupSize;
  Tile tile;
  tile.kvHead = kvHead;
  tile.split = split;
  for (tile.firstToken = first; tile.firstToken < last; tile.firstToken = tile.lastToken) {
    const int32_t end = least(last, tile.firstToken + tokenTileOf(cache));
    tile.sequence = cache.sequences[tile.firstToken];
    tile.context = cache.contextLengths[tile.sequence];
    tile.lastToken = tile.firstToken + 1;
    while (tile.lastToken < end && cache.sharesSlots(tile.firstToken, tile.lastToken, cutsByToken)) tile.lastToken++;
    for (tile.firstHead = kvHead * cache.groupSize; tile.firstHead < endHead; tile.firstHead = tile.lastHead) {
      tile.lastHead = least(endHead, tile.firstHead + MAX_LANES);
      openTile(tile, scratch, attend);
    }
  }
}

/** Calls `attend` with the FlashTiles of this thread. Work items: (KV head, tile of tokens, split), the last tokens first. */
template <class F> inline void forEachTile(const TileScratch& scratch, int32_t numSplits, Threads& threads, F attend) {
  const KvCache& cache = scratch.cache;
  const int32_t tokenTile = tokenTileOf(cache);
  const int32_t numTokenTiles = (cache.numTokens + tokenTile - 1) / tokenTile;
  const int32_t numItems = numTokenTiles * numSplits * cache.numKvHeads;
  for (int32_t item = threads.nextItems(1); item < numItems; item = threads.nextItems(1)) {
    const int32_t first = (numTokenTiles - 1 - item / numSplits % numTokenTiles) * tokenTile;
    const int32_t last = least(cache.numTokens, first + tokenTile);
    forTiles(scratch, first, last, item / numSplits / numTokenTiles, item % numSplits, numSplits > 1, attend);
  }
}

/** Calls `attend` with a FlashTile of each token with each group of at most MAX_LANES heads. Work items: (token, group). */
template <class F> inline void forEachGroup(const TileScratch& scratch, int32_t groupSize, Threads& threads, F attend) {
  const KvCache& cache = scratch.cache;
  const int32_t numGroups = cache.numHeads / groupSize;
  const int32_t numItems = cache.numTokens * numGroups;
  for (int32_t item = threads.nextItems(1); item < numItems; item = threads.nextItems(1)) {
    const int32_t token = item / numGroups, firstHead = item % numGroups * groupSize;
    const int32_t sequence = cache.sequences[token], kvHead = firstHead / cache.groupSize;
    const Tile tile = {token, token + 1, firstHead, firstHead + groupSize, kvHead, sequence, cache.contextLengths[sequence], 0};
    openTile(tile, scratch, attend);
  }
}
}  // namespace WINNOW_NAMESPACE
