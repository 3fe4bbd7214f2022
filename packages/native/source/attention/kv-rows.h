/** Rows of keys or values as f32: those of an f32 cache in place, others dequantized to a scratch that stays in the L1 cache. */
#pragma once
#include <stddef.h>
#include "../generated/dtypes.h"
#include "../simd/float-vectors.h"

namespace WINNOW_NAMESPACE {

/** Whether `rowsOf` knows a dtype. */
inline bool isRowType(int32_t dtype) {
  return dtype == winnow::F32 || dtype == winnow::F16 || dtype == winnow::BF16 || dtype == winnow::Q8_0 || dtype == winnow::Q4_0;
}

/** Bytes of `count` stored numbers. */
inline size_t rowBytesOf(int32_t dtype, int32_t count) { return bytesOf(dtype, static_cast<uint64_t>(count)); }

inline void dequantizeQ8(const uint8_t* from, float* to, int32_t count) {
  for (int32_t i = 0; i < count; i += 32, from += winnow::Q8_0_BLOCK_BYTES) {
    const float scale = halfToFloat(from);
    widenBytes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2)), scale, to + i);
    widenBytes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 18)), scale, to + i + 16);
  }
}

/** Low nibbles are the first half of a block, high ones the second. */
inline void dequantizeQ4(const uint8_t* from, float* to, int32_t count) {
  const __m128i low = _mm_set1_epi8(15);
  const __m128i eight = _mm_set1_epi8(8);
  for (int32_t i = 0; i < count; i += 32, from += winnow::Q4_0_BLOCK_BYTES) {
    const float scale = halfToFloat(from);
    const __m128i nibbles = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2));
    widenBytes(_mm_sub_epi8(_mm_and_si128(nibbles, low), eight), scale, to + i);
    widenBytes(_mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(nibbles, 4), low), eight), scale, to + i + 16);
  }
}

template <class LOAD>
inline void dequantizeWords(const uint8_t* from, float* to, int32_t count, LOAD loadWords) {
  int32_t i = 0;
  for (; i + LANES <= count; i += LANES) storeFloats(to + i, loadWords(from + 2 * i));
  if (i == count) return;
  uint8_t rest[2 * LANES] = {};
  memcpy(rest, from + 2 * i, static_cast<size_t>(2 * (count - i)));
  float last[LANES];
  storeFloats(last, loadWords(rest));
  memcpy(to + i, last, static_cast<size_t>(4 * (count - i)));
}

/** `count` numbers at `from` as f32, dequantized to `to` unless they are f32. */
inline const float* rowsOf(int32_t dtype, const uint8_t* from, float* to, int32_t count) {
  switch (dtype) {
    case winnow::F32: return reinterpret_cast<const float*>(from);
    case winnow::F16: dequantizeWords(from, to, count, loadHalves); break;
    case winnow::BF16: dequantizeWords(from, to, count, loadBrainFloats); break;
    case winnow::Q8_0: dequantizeQ8(from, to, count); break;
    default: dequantizeQ4(from, to, count);
  }
  return to;
}

}  // namespace WINNOW_NAMESPACE
