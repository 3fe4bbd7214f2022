/**
 * A tile of flash attention: queries of consecutive tokens of one sequence times heads of one KV head, in panels, with the state of an
 * online softmax per query. Ops bring rows of keys and values, and say which queries see them.
 */
#pragma once
#include "../runtime/threads.h"
#include "exact-attention.h"
#include "panel.h"

namespace WINNOW_NAMESPACE {

/** Maximum number of queries in a tile. */
constexpr int32_t MAX_LANES = 64;
/** Maximum number of rows in a step. */
constexpr int32_t STEP_ROWS = 64;

inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/** Queries at distances of `low` to `high` from a position see a row; `bias` is added to its logits. */
struct Visibility {
  int32_t position, low, high;
  float bias;
};

/** Queries of consecutive tokens of one sequence, times heads of one KV head. */
struct Tile {
  int32_t firstToken, lastToken, firstHead, lastHead, kvHead, sequence, context;
  /** The split of the context that the tile attends to. */
  int32_t split;

  int32_t numHeads() const { return lastHead - firstHead; }
  int32_t numLanes() const { return (lastToken - firstToken) * numHeads(); }
};

/** Calls `attend` for the tiles of this thread. Work items: (KV head, tile of tokens, split), the last tokens first. */
template <class F> inline void forEachTile(const KvCache& cache, int32_t numSplits, Threads& threads, F attend) {
  const int32_t headTile = least(cache.groupSize, MAX_LANES);
  const int32_t tokenTile = MAX_LANES / headTile;
  const int32_t numTokenTiles = (cache.numTokens + tokenTile - 1) / tokenTile;
  const int32_t numItems = numTokenTiles * numSplits * cache.numKvHeads;
  for (int32_t item = threads.nextItems(1); item < numItems; item = threads.nextItems(1)) {
    Tile tile;
    tile.split = item % numSplits;
    tile.kvHead = item / numSplits / numTokenTiles;
    const int32_t first = (numTokenTiles - 1 - item / numSplits % numTokenTiles) * tokenTile;
    const int32_t last = least(cache.numTokens, first + tokenTile);
    for (tile.firstToken = first; tile.firstToken < last; tile.firstToken = tile.lastToken) {
      tile.sequence = cache.sequences[tile.firstToken];
      tile.context = cache.contextLengths[tile.sequence];
      tile.lastToken = tile.firstToken + 1;
      while (tile.lastToken < last && cache.sequences[tile.lastToken] == tile.sequence) tile.lastToken++;
      const int32_t endHead = (tile.kvHead + 1) * cache.groupSize;
      for (tile.firstHead = tile.kvHead * cache.groupSize; tile.firstHead < endHead; tile.firstHead = tile.lastHead) {
        tile.lastHead = least(endHead, tile.firstHead + headTile);
        attend(tile);
      }
    }
  }
}

/** Scratch of a tile; every part is aligned to 64 bytes. */
struct TileScratch {
  float *queries, *outputs, *maxima, *sums, *factors, *logits;
  int32_t* positions;
  /** Rows of a step. */
  float *keys, *values;
  /** Of `ExactSoftmax`. */
  double* exact;
  uint8_t* end;

  TileScratch(const KvCache& cache, uint8_t* base) : end(base + (-reinterpret_cast<uintptr_t>(base) & 63)) {
    queries = take(MAX_LANES * cache.headDim);
    outputs = take(MAX_LANES * cache.valueDim);
    maxima = take(MAX_LANES);
    sums = take(MAX_LANES);
    factors = take(MAX_LANES);
    positions = reinterpret_cast<int32_t*>(take(MAX_LANES));
    logits = take(STEP_ROWS * 2 * LANES);
    keys = take(STEP_ROWS * cache.headDim);
    values = take(STEP_ROWS * cache.valueDim);
    exact = reinterpret_cast<double*>(take(2 * cache.valueDim));
  }

 private:
  float* take(int32_t count) {
    uint8_t* at = end;
    end += (static_cast<size_t>(count) * 4 + 63) & ~size_t{63};
    return reinterpret_cast<float*>(at);
  }
};

/** Bytes of scratch per thread. */
inline uint64_t tileScratchBytes(const Record& record) {
  return reinterpret_cast<uintptr_t>(TileScratch(KvCache(record), nullptr).end) + 64;
}

/** A tile whose lanes are in panels P. */
template <class P> class FlashTile {
 public:
  FlashTile(const KvCache& cache, const Tile& tile, const TileScratch& scratch) : cache_(cache), tile_(tile), scratch_(scratch) {
    numPanels_ = (tile.numLanes() + P::QUERIES - 1) / P::QUERIES;
    for (int32_t lane = 0; lane < numPanels_ * P::QUERIES; lane++) openLane(lane);
    memset(scratch.outputs, 0, static_cast<size_t>(numPanels_ * P::QUERIES * cache.valueDim) * sizeof(float));
  }

  /** Replaces the queries by those at `[numTokens, numHeads, headDim]`; keeps the states. */
  void loadQueries(const float* from) {
    for (int32_t lane = 0; lane < numPanels_ * P::QUERIES; lane++) loadQuery(from, lane);
  }

  /** Range of the positions of the queries. */
  int32_t lowestPosition() const { return lowest_; }
  int32_t highestPosition() const { return highest_; }

  /** Row of a lane in tensors `[numTokens, numHeads]`; padding lanes repeat the last query. */
  size_t rowOf(int32_t lane) const {
    const int32_t own = least(lane, tile_.numLanes() - 1);
    return static_cast<size_t>(tokenOf(own)) * cache_.numHeads + tile_.firstHead + own % tile_.numHeads();
  }
  const float* queryOf(int32_t lane) const { return cache_.queryAt(rowOf(lane)); }
  int32_t positionOf(int32_t lane) const { return scratch_.positions[lane]; }
  float maximumOf(int32_t lane) const { return scratch_.maxima[lane]; }
  float sumOf(int32_t lane) const { return scratch_.sums[lane]; }

  /**
   * Attends to `count` rows, at most STEP_ROWS. Without `visibility` every query sees all of them. The first panel prefetches
   * the keys and values that come next.
   */
  void attendRows(const float* keys, const float* values, int32_t count, const Visibility* visibility, Prefetch aheadKeys,
                  Prefetch aheadValues);

  /** Writes the weighted sum of values of a lane times a factor; false if a result is not finite. */
  bool writeLane(int32_t lane, float factor, float* y) const {
    const float* from = scratch_.outputs + lane / P::QUERIES * P::QUERIES * cache_.valueDim + lane % P::QUERIES;
    float check = maximumOf(lane) == -INFINITY ? sumOf(lane) : maximumOf(lane) + sumOf(lane);
    for (int32_t i = 0; i < cache_.valueDim; i++) {
      check += from[i * P::QUERIES];
      y[i] = from[i * P::QUERIES] * factor;
    }
    return fabsf(check) < INFINITY;
  }

 private:
  int32_t tokenOf(int32_t lane) const { return tile_.firstToken + lane / tile_.numHeads(); }

  /** Empties the state of a lane and loads its query. */
  void openLane(int32_t lane) {
    const int32_t position = cache_.positions[tokenOf(least(lane, tile_.numLanes() - 1))];
    scratch_.positions[lane] = position;
    scratch_.maxima[lane] = -INFINITY;
    scratch_.sums[lane] = 0;
    if (position < lowest_) lowest_ = position;
    if (position > highest_) highest_ = position;
    loadQuery(cache_.queries, lane);
  }

  /** Transposes the scaled query of a lane. */
  void loadQuery(const float* from, int32_t lane) {
    const float* query = from + rowOf(lane) * cache_.headDim;
    float* to = scratch_.queries + lane / P::QUERIES * P::QUERIES * cache_.headDim + lane % P::QUERIES;
    for (int32_t i = 0; i < cache_.headDim; i++) to[i * P::QUERIES] = query[i] * cache_.scale;
  }

  /** Hides a row from the lanes of a panel that do not see it. */
  void hideRow(int32_t lane, int32_t row, const Visibility& seen) const;

  const KvCache& cache_;
  const Tile& tile_;
  const TileScratch& scratch_;
  int32_t numPanels_;
  int32_t lowest_ = INT32_MAX, highest_ = 0;
};

/** Calls `attend` with a FlashTile whose panels suit the number of lanes. */
template <class F> inline void openTile(const KvCache& cache, const Tile& tile, const TileScratch& scratch, F attend) {
  const int32_t numLanes = tile.numLanes();
  if (numLanes <= 4) return attend(FlashTile<Panel<4, 1>>(cache, tile, scratch));
  if (LANES > 8 && numLanes <= 8) return attend(FlashTile<Panel<8, 1>>(cache, tile, scratch));
  if ((numLanes - 1) / LANES % 2 == 0) return attend(FlashTile<Panel<LANES, 1>>(cache, tile, scratch));
  attend(FlashTile<Panel<LANES, 2>>(cache, tile, scratch));
}

}  // namespace WINNOW_NAMESPACE
