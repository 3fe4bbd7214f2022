/** Queries and paged KV cache of an attention record: every such op begins with the operands and attributes of `attention`. */
#pragma once
#include "../generated/operands/attention.h"
#include "kv-rows.h"

namespace WINNOW_NAMESPACE {
namespace inputs = operands::attention;

inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/** The keys or the values `[numBlocks, numKvHeads, blockSize, depth]`; `index` is that of a slot in the whole cache. */
struct CachedRows {
  const uint8_t* address;
  int32_t dtype, numKvHeads, blockSize, depth;
  /** Bytes of a stored row. */
  size_t rowBytes = rowBytesOf(dtype, depth);

  /** Address of the stored row of a slot. */
  const uint8_t* addressOf(int32_t index, int32_t kvHead) const {
    const size_t first = (static_cast<size_t>(index / blockSize) * numKvHeads + kvHead) * blockSize;
    return address + (first + index % blockSize) * rowBytes;
  }
  /** Rows of one block from a slot on, as they are stored, as f32 (see `rowsOf`), and copied as f32. */
  StoredRows at(int32_t index, int32_t kvHead) const { return {addressOf(index, kvHead), dtype, rowBytes}; }
  const float* floatsAt(int32_t index, int32_t kvHead, int32_t count, float* to) const {
    return rowsOf(dtype, addressOf(index, kvHead), to, count * depth);
  }
  void copy(int32_t index, int32_t kvHead, int32_t count, float* to) const { copyRows(dtype, addressOf(index, kvHead), to, count * depth); }
};

/** Slots of the context of a token, its splits, and the slots of a split, whole chunks of 64. */
struct ContextCut { int32_t context, splits, slots; };

struct KvCache {
  const Record& record;
  int32_t numTokens = inputs::q::numTokens(record), numHeads = inputs::q::numHeads(record);
  int32_t numKvHeads = inputs::keys::numKvHeads(record);
  /** Query heads of a KV head. */
  int32_t groupSize = numHeads / numKvHeads;
  int32_t headDim = inputs::keys::headDim(record), valueDim = inputs::values::valueDim(record);
  int32_t blockSize = inputs::keys::blockSize(record), maxBlocks = inputs::blockTable::maxBlocks(record);
  CachedRows keys = {inputs::keys::address(record), inputs::keys::dtype(record), numKvHeads, blockSize, headDim};
  CachedRows values = {inputs::values::address(record), inputs::values::dtype(record), numKvHeads, blockSize, valueDim};
  const float* queries = inputs::q::address(record);
  const int32_t *positions = inputs::positions::address(record), *sequences = inputs::sequences::address(record);
  const int32_t *slotPositions = inputs::slotPositions::address(record), *blockTable = inputs::blockTable::address(record);
  const int32_t* contextLengths = inputs::contextLengths::address(record);
  float scale = inputs::attributes::scale(record), softCap = inputs::attributes::softCap(record);
  bool isCausal = inputs::attributes::causal(record), isChunked = inputs::attributes::chunked(record);
  int32_t window = inputs::attributes::window(record);
  /** A query sees keys at distances of `minDistance` to `maxDistance`; keys after the query have negative distances. */
  int32_t maxDistance = window == 0 ? INT32_MAX : isCausal ? window - 1 : window >> 1;
  int32_t minDistance = isCausal ? 0 : -maxDistance;
  /** Keys from this position on are not seen. */
  int32_t limit = INT32_MAX;
  const float* sinks = nullptr;  // learned sinks per head

  explicit KvCache(const Record& from) : record(from) {}

  /** Address of the query in row `token * numHeads + head`, which is also the row of its output. */
  const float* queryAt(size_t row) const { return queries + row * headDim; }
  /** Index of a logical slot in the whole cache. */
  int32_t slotIndex(int32_t sequence, int32_t slot) const {
    return blockTable[static_cast<size_t>(sequence) * maxBlocks + slot / blockSize] * blockSize + slot % blockSize;
  }
  /** Number of slots from a logical slot to the end of its block, at most `limit`. */
  int32_t slotsInBlock(int32_t slot, int32_t limit) const { return least(blockSize - slot % blockSize, limit); }
  /** Calls `use` with the index and the number of the slots of each part of a block, `partSize` slots, in `[0, context)`. */
  template <class F> void forParts(int32_t sequence, int32_t context, int32_t partSize, F use) const {
    for (int32_t slot = 0; slot < context; slot += partSize) use(slotIndex(sequence, slot), least(partSize, context - slot));
  }
  /** Row of the summary of the part that holds a slot, in tensors `[numBlocks, numParts, numKvHeads]`. */
  size_t summaryRow(int32_t index, int32_t partSize, int32_t kvHead) const {
    return static_cast<size_t>(index / partSize) * numKvHeads + kvHead;
  }
  /** Cuts the context that ends with a token, whatever follows it in the step: its bits are those of a step of its own. */
  ContextCut cutContext(int32_t token) const {
    int32_t context = contextLengths[sequences[token]];
    for (int32_t t = token + 1; isCausal && t < numTokens && sequences[t] == sequences[token]; t++) context--;
    const int32_t most = least(context / MIN_SPLIT, least(SPLIT_ITEMS / numKvHeads, MAX_SPLITS)), splits = most > 1 ? most : 1;
    return {context, splits, ((context + splits - 1) / splits + 63) & -64};
  }
  /** Whether two tokens share their sequence and, if contexts are cut by token, their splits. */
  bool sharesSlots(int32_t a, int32_t b, bool cutsByToken) const {
    return sequences[a] == sequences[b] && (!cutsByToken || cutContext(a).slots == cutContext(b).slots);
  }
  /** The largest distance of a key that a query sees: chunks have `maxDistance + 1` positions. */
  int32_t reachOf(int32_t query) const { return isChunked ? query % (maxDistance + 1) : maxDistance; }
  bool isVisible(int32_t query, int32_t key) const {
    return key >= 0 && key < limit && query - key >= minDistance && query - key <= reachOf(query);
  }
  /** Number of slots, out of `count` consecutive ones, that a query at a position sees. */
  int32_t countVisible(int32_t query, int32_t index, int32_t count) const {
    int32_t numVisible = 0;
    for (int32_t i = index; i < index + count; i++) numVisible += isVisible(query, slotPositions[i]) ? 1 : 0;
    return numVisible;
  }
};

/** Whether rows of the caches of a record can be dequantized. */
inline bool hasRowTypes(const Record& record) { return isRowType(inputs::keys::dtype(record)) && isRowType(inputs::values::dtype(record)); }
}  // namespace WINNOW_NAMESPACE
