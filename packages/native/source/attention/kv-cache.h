/** Queries and paged KV cache of an attention record: every such op begins with the operands and attributes of `attention`. */
#pragma once
#include "../generated/operands/attention.h"
#include "kv-rows.h"

namespace WINNOW_NAMESPACE {

struct KvCache {
  int32_t numTokens, numHeads, numKvHeads;
  /** Query heads of a KV head. */
  int32_t groupSize;
  int32_t headDim, valueDim, blockSize, maxBlocks;
  int32_t keyType, valueType;
  /** Bytes of a stored row. */
  size_t keyBytes, valueBytes;
  const float* queries;
  const uint8_t *keys, *values;
  const int32_t *positions, *sequences, *slotPositions, *blockTable, *contextLengths;
  float scale, softCap;
  /** A query sees keys at distances of `minDistance` to `maxDistance`; keys after the query have negative distances. */
  int32_t minDistance, maxDistance;
  /** Keys from this position on are not seen. */
  int32_t limit = INT32_MAX;

  explicit KvCache(const Record& record);

  /** Address of the query in row `token * numHeads + head`, which is also the row of its output. */
  const float* queryAt(size_t row) const { return queries + row * headDim; }
  /** Index of a logical slot in the whole cache. */
  int32_t slotIndex(int32_t sequence, int32_t slot) const {
    return blockTable[static_cast<size_t>(sequence) * maxBlocks + slot / blockSize] * blockSize + slot % blockSize;
  }
  /** Number of slots from a logical slot to the end of its block, at most `limit`. */
  int32_t slotsInBlock(int32_t slot, int32_t limit) const {
    const int32_t rest = blockSize - slot % blockSize;
    return rest < limit ? rest : limit;
  }
  /** Addresses of stored rows. */
  const uint8_t* keyRow(int32_t index, int32_t kvHead) const { return keys + rowOf(index, kvHead) * keyBytes; }
  const uint8_t* valueRow(int32_t index, int32_t kvHead) const { return values + rowOf(index, kvHead) * valueBytes; }
  /** Rows of one block as f32; see `rowsOf`. */
  const float* keysOf(int32_t index, int32_t kvHead, int32_t count, float* to) const {
    return rowsOf(keyType, keyRow(index, kvHead), to, count * headDim);
  }
  const float* valuesOf(int32_t index, int32_t kvHead, int32_t count, float* to) const {
    return rowsOf(valueType, valueRow(index, kvHead), to, count * valueDim);
  }
  bool isVisible(int32_t query, int32_t key) const {
    return key >= 0 && key < limit && query - key >= minDistance && query - key <= maxDistance;
  }

 private:
  size_t rowOf(int32_t index, int32_t kvHead) const {
    return (static_cast<size_t>(index / blockSize) * numKvHeads + kvHead) * blockSize + index % blockSize;
  }
};

inline KvCache::KvCache(const Record& record) {
  namespace op = operands::attention;
  numTokens = op::q::numTokens(record);
  numHeads = op::q::numHeads(record);
  numKvHeads = op::keys::numKvHeads(record);
  groupSize = numHeads / numKvHeads;
  headDim = op::keys::headDim(record);
  valueDim = op::values::valueDim(record);
  blockSize = op::keys::blockSize(record);
  maxBlocks = op::blockTable::maxBlocks(record);
  keyType = op::keys::dtype(record);
  valueType = op::values::dtype(record);
  keyBytes = rowBytesOf(keyType, headDim);
  valueBytes = rowBytesOf(valueType, valueDim);
  queries = op::q::address(record);
  keys = op::keys::address(record);
  values = op::values::address(record);
  positions = op::positions::address(record);
  sequences = op::sequences::address(record);
  slotPositions = op::slotPositions::address(record);
  blockTable = op::blockTable::address(record);
  contextLengths = op::contextLengths::address(record);
  scale = op::attributes::scale(record);
  softCap = op::attributes::softCap(record);
  const int32_t window = op::attributes::window(record);
  const bool isCausal = op::attributes::causal(record);
  maxDistance = window == 0 ? INT32_MAX : isCausal ? window - 1 : window >> 1;
  minDistance = isCausal ? 0 : -maxDistance;
}

/** Whether rows of the caches of a record can be dequantized. */
inline bool hasRowTypes(const Record& record) {
  return isRowType(operands::attention::keys::dtype(record)) && isRowType(operands::attention::values::dtype(record));
}

}  // namespace WINNOW_NAMESPACE
