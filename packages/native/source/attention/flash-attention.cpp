#include "flash-attention.h"
#include "exact-attention.h"
#include "panel.h"

namespace WINNOW_NAMESPACE {

namespace {

/** Maximum number of keys in a chunk, which is a part of a block. */
constexpr int32_t CHUNK = 64;

int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/** Scratch of a tile; every part is aligned to 64 bytes. */
struct Scratch {
  float *queries, *outputs, *maxima, *sums, *factors, *logits, *keys, *values;
  int32_t* positions;
  /** For `attendExactly`. */
  double* exact;
  uint8_t* end;

  Scratch(const KvCache& cache, uint8_t* base) : end(base + (-reinterpret_cast<uintptr_t>(base) & 63)) {
    queries = take(MAX_LANES * cache.headDim);
    outputs = take(MAX_LANES * cache.valueDim);
    maxima = take(MAX_LANES);
    sums = take(MAX_LANES);
    factors = take(MAX_LANES);
    positions = reinterpret_cast<int32_t*>(take(MAX_LANES));
    logits = take(CHUNK * 2 * LANES);
    keys = take(CHUNK * cache.headDim);
    values = take(CHUNK * cache.valueDim);
    exact = reinterpret_cast<double*>(take(2 * cache.valueDim));
  }

 private:
  float* take(int32_t count) {
    uint8_t* at = end;
    end += (static_cast<size_t>(count) * 4 + 63) & ~size_t{63};
    return reinterpret_cast<float*>(at);
  }
};

/** Queries of consecutive tokens of one sequence, times heads of one KV head. */
struct Tile {
  int32_t firstToken, lastToken, firstHead, lastHead, kvHead, split;

  int32_t numHeads() const { return lastHead - firstHead; }
  int32_t numLanes() const { return (lastToken - firstToken) * numHeads(); }
};

/** Consecutive slots of a block; `positions` is null when every query sees all of them, so that they need no mask. */
struct Chunk {
  int32_t index, count;
  const int32_t* positions;
};

/** Attention of a tile whose lanes are in panels P. */
template <class P> class FlashTile {
 public:
  FlashTile(const KvCache& cache, const Tile& tile, const Scratch& scratch)
      : cache_(cache), tile_(tile), scratch_(scratch), sequence_(cache.sequences[tile.firstToken]) {
    numPanels_ = (tile.numLanes() + P::QUERIES - 1) / P::QUERIES;
    lowest_ = INT32_MAX;
    highest_ = 0;
    for (int32_t lane = 0; lane < numPanels_ * P::QUERIES; lane++) openLane(lane);
    memset(scratch.outputs, 0, static_cast<size_t>(numPanels_ * P::QUERIES * cache.valueDim) * sizeof(float));
  }

  /** Attends to the logical slots `[begin, end)`. */
  void attend(int32_t begin, int32_t end) {
    nextSlot_ = begin;
    endSlot_ = end;
    for (Chunk next = nextChunk(); next.count > 0;) {
      const Chunk chunk = next;
      next = nextChunk();
      attendChunk(chunk, next);
    }
  }

  /** Writes the partial states or outputs of all lanes over the slots `[begin, end)`. */
  void write(const FlashOutput& to, int32_t begin, int32_t end) const {
    for (int32_t lane = 0; lane < tile_.numLanes(); lane++) writeLane(to, lane, begin, end);
  }

 private:
  /** Row of a lane in tensors `[numTokens, numHeads]`; padding lanes repeat the last query. */
  size_t rowOf(int32_t lane) const {
    const int32_t own = least(lane, tile_.numLanes() - 1);
    return static_cast<size_t>(tokenOf(own)) * cache_.numHeads + tile_.firstHead + own % tile_.numHeads();
  }
  int32_t tokenOf(int32_t lane) const { return tile_.firstToken + lane / tile_.numHeads(); }

  /** Empties the state of a lane and transposes its scaled query. */
  void openLane(int32_t lane) {
    const int32_t position = cache_.positions[tokenOf(least(lane, tile_.numLanes() - 1))];
    scratch_.positions[lane] = position;
    scratch_.maxima[lane] = -INFINITY;
    scratch_.sums[lane] = 0;
    if (position < lowest_) lowest_ = position;
    if (position > highest_) highest_ = position;
    const float* query = cache_.queryAt(rowOf(lane));
    float* to = scratch_.queries + lane / P::QUERIES * P::QUERIES * cache_.headDim + lane % P::QUERIES;
    for (int32_t i = 0; i < cache_.headDim; i++) to[i * P::QUERIES] = query[i] * cache_.scale;
  }

  /** The next chunk that any query may see; empty after the last one. */
  Chunk nextChunk() {
    while (nextSlot_ < endSlot_) {
      const int32_t index = cache_.slotIndex(sequence_, nextSlot_);
      const int32_t count = cache_.slotsInBlock(nextSlot_, least(CHUNK, endSlot_ - nextSlot_));
      const int32_t* positions = cache_.slotPositions + index;
      nextSlot_ += count;
      // as unsigned numbers, the negative positions of empty slots are the largest
      uint32_t low = UINT32_MAX, top = 0;
      int32_t high = -1;
      for (int32_t i = 0; i < count; i++) {
        const uint32_t position = static_cast<uint32_t>(positions[i]);
        low = position < low ? position : low;
        top = position > top ? position : top;
        high = positions[i] > high ? positions[i] : high;
      }
      if (high < 0) continue;
      const int32_t farthest = lowest_ - high;
      const int32_t nearest = highest_ - static_cast<int32_t>(low);
      if (farthest > cache_.maxDistance || nearest < cache_.minDistance) continue;
      const bool isSeen = top <= INT32_MAX && farthest >= cache_.minDistance && nearest <= cache_.maxDistance;
      return {index, count, isSeen ? nullptr : positions};
    }
    return {0, 0, nullptr};
  }

  /** Attends to a chunk; the first panel prefetches the next one. */
  void attendChunk(const Chunk& chunk, const Chunk& next) {
    const int32_t headDim = cache_.headDim, valueDim = cache_.valueDim, count = chunk.count;
    const float* keys = cache_.keysOf(chunk.index, tile_.kvHead, count, scratch_.keys);
    const float* values = cache_.valuesOf(chunk.index, tile_.kvHead, count, scratch_.values);
    Prefetch aheadKeys(cache_.keyRow(next.index, tile_.kvHead), next.count * cache_.keyBytes, gemmSteps<P>(count, headDim));
    Prefetch aheadValues(cache_.valueRow(next.index, tile_.kvHead), next.count * cache_.valueBytes, gemmSteps<P>(valueDim, count));
    float* logits = scratch_.logits;
    for (int32_t panel = 0; panel < numPanels_; panel++) {
      const int32_t lane = panel * P::QUERIES;
      gemmRows<P, false>(logits, keys, count, headDim, scratch_.queries + lane * headDim, headDim, nullptr, aheadKeys);
      if (cache_.softCap != 0) capRows<P>(logits, count, cache_.softCap);
      if (chunk.positions != nullptr) hideRows(panel, chunk);
      softmaxRows<P>(logits, count, scratch_.maxima + lane, scratch_.sums + lane, scratch_.factors);
      gemmRows<P, true>(scratch_.outputs + lane * valueDim, values, valueDim, valueDim, logits, count, scratch_.factors, aheadValues);
      aheadKeys.step = aheadValues.step = 0;
    }
  }

  /** Hides each key from the lanes that do not see its position, and empty slots from all. */
  void hideRows(int32_t panel, const Chunk& chunk) const {
    for (int32_t i = 0; i < chunk.count; i++) {
      const int32_t position = chunk.positions[i];
      const int32_t* lanes = scratch_.positions + panel * P::QUERIES;
      // no distance is at least 1 and at most 0
      const bool isEmpty = position < 0;
      hideRow<P>(scratch_.logits + i * P::QUERIES, lanes, position, isEmpty ? 1 : cache_.minDistance, isEmpty ? 0 : cache_.maxDistance);
    }
  }

  void writeLane(const FlashOutput& to, int32_t lane, int32_t begin, int32_t end) const {
    const int32_t valueDim = cache_.valueDim;
    const float* from = scratch_.outputs + lane / P::QUERIES * P::QUERIES * valueDim + lane % P::QUERIES;
    const size_t row = rowOf(lane) + static_cast<size_t>(tile_.split) * cache_.numTokens * cache_.numHeads;
    float* values = to.values + row * valueDim;
    float m = scratch_.maxima[lane];
    float l = scratch_.sums[lane];
    const bool isFinal = to.maxima == nullptr;
    float check = m == -INFINITY ? l : m + l;
    float factor = !isFinal ? 1 : l == 0 ? 0 : 1 / l;
    for (int32_t i = 0; i < valueDim; i++) {
      check += from[i * P::QUERIES];
      values[i] = from[i * P::QUERIES] * factor;
    }
    if (!(fabsf(check) < INFINITY)) {
      // infinities or NaN of hidden slots may have leaked into the sums
      const ExactQuery query = {cache_.queryAt(rowOf(lane)), scratch_.positions[lane], sequence_, tile_.kvHead};
      attendExactly(cache_, query, begin, end, {&m, &l, values}, {scratch_.keys, scratch_.values, scratch_.exact});
      factor = l == 0 ? 0 : 1 / l;
      for (int32_t i = 0; isFinal && i < valueDim; i++) values[i] *= factor;
    }
    if (isFinal) return;
    to.maxima[row] = m;
    to.sums[row] = l;
  }

  const KvCache& cache_;
  const Tile& tile_;
  const Scratch& scratch_;
  int32_t sequence_;
  int32_t numPanels_;
  /** Range of the positions of the queries. */
  int32_t lowest_, highest_;
  /** Slots `[nextSlot_, endSlot_)` are still to be visited. */
  int32_t nextSlot_ = 0, endSlot_ = 0;
};

template <class P>
void attendIn(const KvCache& cache, const FlashOutput& output, const Tile& tile, int32_t begin, int32_t end, const Scratch& scratch) {
  FlashTile<P> flash(cache, tile, scratch);
  flash.attend(begin, end);
  flash.write(output, begin, end);
}

/** Chooses the panels of a tile by its number of lanes. */
void attendTile(const KvCache& cache, const FlashOutput& output, const Tile& tile, int32_t begin, int32_t end, const Scratch& scratch) {
  const int32_t numLanes = tile.numLanes();
  if (numLanes <= 4) return attendIn<Panel<4, 1>>(cache, output, tile, begin, end, scratch);
  if (LANES > 8 && numLanes <= 8) return attendIn<Panel<8, 1>>(cache, output, tile, begin, end, scratch);
  if ((numLanes - 1) / LANES % 2 == 0) return attendIn<Panel<LANES, 1>>(cache, output, tile, begin, end, scratch);
  attendIn<Panel<LANES, 2>>(cache, output, tile, begin, end, scratch);
}

}  // namespace

uint64_t flashScratchBytes(const KvCache& cache) {
  return reinterpret_cast<uintptr_t>(Scratch(cache, nullptr).end) + 64;
}

void flashAttention(const KvCache& cache, const FlashOutput& output, int32_t numSplits, bool isAligned, uint8_t* base, Threads& threads) {
  const Scratch scratch(cache, base);
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
      const int32_t sequence = cache.sequences[tile.firstToken];
      tile.lastToken = tile.firstToken + 1;
      while (tile.lastToken < last && cache.sequences[tile.lastToken] == sequence) tile.lastToken++;
      const int32_t context = cache.contextLengths[sequence];
      int32_t length = (context + numSplits - 1) / numSplits;
      if (isAligned) length = (length + CHUNK - 1) & -CHUNK;
      const int32_t begin = least(context, tile.split * length);
      const int32_t end = least(context, begin + length);
      const int32_t endHead = (tile.kvHead + 1) * cache.groupSize;
      for (tile.firstHead = tile.kvHead * cache.groupSize; tile.firstHead < endHead; tile.firstHead = tile.lastHead) {
        tile.lastHead = least(endHead, tile.firstHead + headTile);
        attendTile(cache, output, tile, begin, end, scratch);
      }
    }
  }
}

}  // namespace WINNOW_NAMESPACE
