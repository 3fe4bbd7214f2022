/** Verbs of the level avx512: 16 lanes. */
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "../runtime/level.h"

namespace WINNOW_NAMESPACE {

using Floats = __m512;
using Ints = __m512i;
constexpr int LANES = 16;
/** Tokens of the register tile of f32 GEMM, which has two vectors of rows. */
constexpr int FLOAT_TILE_TOKENS = 12;

inline Floats splatF(float value) { return _mm512_set1_ps(value); }
inline Floats load(const float* from) { return _mm512_loadu_ps(from); }
inline void store(float* to, Floats value) { _mm512_storeu_ps(to, value); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
/** a * b + c */
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
/** The first `count` lanes, zeros in the others. */
inline Floats loadUpTo(const float* from, int count) { return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1 << count) - 1), from); }
inline void storeUpTo(float* to, Floats value, int count) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1 << count) - 1), value);
}

/** Stores the columns of a 4x4 matrix of floats, `stride` floats apart; the arguments are its rows. */
inline void storeColumns(const float* a, const float* b, const float* c, const float* d, float* to, size_t stride) {
  __m128 rows[4] = {_mm_loadu_ps(a), _mm_loadu_ps(b), _mm_loadu_ps(c), _mm_loadu_ps(d)};
  _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
  for (size_t i = 0; i < 4; i++) _mm_storeu_ps(to + i * stride, rows[i]);
}

inline Ints splatI(int32_t value) { return _mm512_set1_epi32(value); }
inline Ints loadI(const void* from) { return _mm512_loadu_si512(from); }
inline void storeI(void* to, Ints value) { _mm512_storeu_si512(to, value); }
inline Ints addI(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints subI(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
inline Ints maxI(Ints a, Ints b) { return _mm512_max_epi32(a, b); }
inline int32_t reduceAdd(Ints a) { return _mm512_reduce_add_epi32(a); }
inline int32_t reduceMax(Ints a) { return _mm512_reduce_max_epi32(a); }
inline Ints bitAnd(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints bitOr(Ints a, Ints b) { return _mm512_or_si512(a, b); }
/** Lanes shifted to the right, zeros from the left; bits move between the bytes of a lane. */
template <int BITS> inline Ints shiftRight(Ints a) { return _mm512_srli_epi32(a, BITS); }
template <int BITS> inline Ints shiftLeft(Ints a) { return _mm512_slli_epi32(a, BITS); }
template <int BITS> inline Ints shiftRightSigned(Ints a) { return _mm512_srai_epi32(a, BITS); }
/** The same with a count for each lane. */
inline Ints shiftRightBy(Ints a, Ints counts) { return _mm512_srlv_epi32(a, counts); }
inline Ints shiftLeftBy(Ints a, Ints counts) { return _mm512_sllv_epi32(a, counts); }
inline Ints bitsOf(Floats a) { return _mm512_castps_si512(a); }
/** The lanes as bytes, saturated. */
inline void storeBytes(uint8_t* to, Ints a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtsepi32_epi8(a)); }
inline Floats toFloat(Ints a) { return _mm512_cvtepi32_ps(a); }
/** The 4 bytes at `from` in every lane. */
inline Ints splatBytes(const uint8_t* from) {
  int32_t word;
  memcpy(&word, from, 4);
  return _mm512_set1_epi32(word);
}

/** Parts of 128 bits. */
constexpr int PARTS = LANES / 4;

/** The same 16 bytes in every part. */
inline Ints splatPart(const uint8_t* from) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
/** The same four binary16 in every part. */
inline Floats splatHalves(const uint8_t* from) {
  int64_t halves;
  memcpy(&halves, from, 8);
  return _mm512_cvtph_ps(_mm256_set1_epi64x(halves));
}
/** `value` in the lanes of the first part, zeros in the others. */
inline Ints firstPart(int32_t value) { return _mm512_maskz_set1_epi32(0x000f, value); }
/** The same with the four numbers at `from`. */
inline Ints firstPart(const void* from) { return _mm512_zextsi128_si512(_mm_loadu_si128(static_cast<const __m128i*>(from))); }
/** The same four floats in every part. */
inline Floats splatPartF(const void* from) { return _mm512_broadcast_f32x4(_mm_loadu_ps(static_cast<const float*>(from))); }
/** The number of its part in every lane. */
inline Ints partIndices() { return _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3); }
/** Stores the sum of the parts. */
inline void storePartSum(float* to, Floats a) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

/** Addresses of PARTS groups: each part of a vector comes from one of them. */
struct Groups {
  const uint8_t* at[PARTS];
};

/** 16 bytes of each group. */
inline Ints loadGroups(const Groups& groups, size_t offset) {
  const auto part = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(groups.at[i] + offset)); };
  __m512i v = _mm512_castsi128_si512(part(0));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, part(1));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, part(2));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, part(3));
}

/** Four binary16 of each group. */
inline Floats loadGroupHalves(const Groups& groups, size_t offset) {
  const auto part = [&](int i) {
    int64_t halves;
    memcpy(&halves, groups.at[i] + offset, 8);
    return halves;
  };
  return _mm512_cvtph_ps(_mm256_set_epi64x(part(3), part(2), part(1), part(0)));
}

/** Adds four products of unsigned bytes of `a` with signed ones of `b` to each lane. */
inline Ints addProducts(Ints sum, Ints a, Ints b) { return _mm512_dpbusd_epi32(sum, a, b); }

}  // namespace WINNOW_NAMESPACE
