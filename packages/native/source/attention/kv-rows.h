/** Rows of keys or values as a cache stores them, and readers that widen LANES of their numbers to f32. */
#pragma once
#include <stddef.h>
#include "../generated/dtypes.h"
#include "../simd/simd.h"

namespace WINNOW_NAMESPACE {
struct StoredRows {
  const uint8_t* at;
  int32_t dtype;
  size_t rowBytes;
};
inline StoredRows floatRows(const float* rows, int32_t depth) {
  return {reinterpret_cast<const uint8_t*>(rows), winnow::F32, static_cast<size_t>(depth) * sizeof(float)};
}

/**
 * A reader has `load`, for the numbers of a row from `i + offset` on: i is a multiple of 32 and the offset one of LANES below 32, so that
 * vectors of a block share its scale. `rest` loads `count` numbers, fewer than LANES.
 */
struct FloatReader {
  static FloatVector<LANES> load(const uint8_t* row, int32_t i, int32_t offset) {
    return loadFloats<LANES>(reinterpret_cast<const float*>(row) + i + offset);
  }
  static FloatVector<LANES> rest(const uint8_t* row, int32_t i, int32_t count) {
    return loadUpTo(reinterpret_cast<const float*>(row) + i, count);
  }
};

template <FloatVector<LANES> (*LOAD)(const uint8_t*)> struct WordReader {
  static FloatVector<LANES> load(const uint8_t* row, int32_t i, int32_t offset) { return LOAD(row + 2 * (i + offset)); }
  static FloatVector<LANES> rest(const uint8_t* row, int32_t i, int32_t count) {
    uint8_t words[2 * LANES] = {};
    memcpy(words, row + 2 * i, static_cast<size_t>(2 * count));
    return LOAD(words);
  }
};

struct Q8Reader {
  static FloatVector<LANES> load(const uint8_t* row, int32_t i, int32_t offset) {
    const uint8_t* block = row + i / 32 * winnow::Q8_0_BLOCK_BYTES;
    return loadBytes(block + 2 + offset) * halfToFloat(block);
  }
  /** Rows are whole blocks. */
  static FloatVector<LANES> rest(const uint8_t*, int32_t, int32_t) { return splatTo<LANES>(0); }
};

/** Low nibbles are the first half of a block, high ones the second. */
struct Q4Reader {
  static FloatVector<LANES> load(const uint8_t* row, int32_t i, int32_t offset) {
    const uint8_t* block = row + i / 32 * winnow::Q4_0_BLOCK_BYTES;
    return loadNibbles(block + 2 + offset % 16, offset >= 16) * halfToFloat(block);
  }
  static FloatVector<LANES> rest(const uint8_t*, int32_t, int32_t) { return splatTo<LANES>(0); }
};

/** Whether there is a reader for a dtype. */
inline bool isRowType(int32_t dtype) {
  return dtype == winnow::F32 || dtype == winnow::F16 || dtype == winnow::BF16 || dtype == winnow::Q8_0 || dtype == winnow::Q4_0;
}

/** Calls `use` with the reader for a dtype. */
template <class F> inline void withReader(int32_t dtype, F use) {
  switch (dtype) {
    case winnow::F32: return use(FloatReader());
    case winnow::F16: return use(WordReader<loadHalves>());
    case winnow::BF16: return use(WordReader<loadBrainFloats>());
    case winnow::Q8_0: return use(Q8Reader());
    default: return use(Q4Reader());
  }
}

/** Bytes of `count` stored numbers. */
inline size_t rowBytesOf(int32_t dtype, int32_t count) { return bytesOf(dtype, static_cast<uint64_t>(count)); }

/** Calls `use` with the places `i + offset` of the whole vectors of `count` numbers. */
template <class F> inline void forVectors(int32_t count, F use) {
  int32_t i = 0;
  for (; i + 32 <= count; i += 32) {
#pragma GCC unroll 4
    for (int32_t offset = 0; offset < 32; offset += LANES) use(i, offset);
  }
  for (int32_t offset = 0; i + offset + LANES <= count; offset += LANES) use(i, offset);
}

/** `count` numbers at `from` as f32: those of an f32 cache in place, others dequantized to `to`. */
inline const float* rowsOf(int32_t dtype, const uint8_t* from, float* to, int32_t count) {
  if (dtype == winnow::F32) return reinterpret_cast<const float*>(from);
  withReader(dtype, [&](auto reader) {
    forVectors(count, [&](int32_t i, int32_t offset) { storeFloats(to + i + offset, reader.load(from, i, offset)); });
    const int32_t whole = count / LANES * LANES;
    if (whole < count) storeUpTo(to + whole, reader.rest(from, whole, count - whole), count - whole);
  });
  return to;
}
/** The same, never in place. */
inline void copyRows(int32_t dtype, const uint8_t* from, float* to, int32_t count) {
  const float* rows = rowsOf(dtype, from, to, count);
  if (rows != to) memcpy(to, rows, static_cast<size_t>(count) * sizeof(float));
}
}  // namespace WINNOW_NAMESPACE
