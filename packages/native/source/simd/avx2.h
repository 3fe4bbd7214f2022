/** Verbs of the levels avx2 and avxvnni: 8 lanes. 8-bit dot products are in maddubs.h and usdot.h. */
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "../runtime/level.h"

namespace WINNOW_NAMESPACE {

using Floats = __m256;
using Ints = __m256i;
constexpr int LANES = 8;
/** Tokens of the register tile of f32 GEMM, which has two vectors of rows. */
constexpr int FLOAT_TILE_TOKENS = 6;

inline Floats splatF(float value) { return _mm256_set1_ps(value); }
inline Floats load(const float* from) { return _mm256_loadu_ps(from); }
inline void store(float* to, Floats value) { _mm256_storeu_ps(to, value); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
/** a * b + c */
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
/** -1 in the first `count` lanes, else 0. */
inline __m256i firstLanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
/** The first `count` lanes, zeros in the others. */
inline Floats loadUpTo(const float* from, int count) { return _mm256_maskload_ps(from, firstLanes(count)); }
inline void storeUpTo(float* to, Floats value, int count) { _mm256_maskstore_ps(to, firstLanes(count), value); }

/** Stores the columns of a 4x4 matrix of floats, `stride` floats apart; the arguments are its rows. */
inline void storeColumns(const float* a, const float* b, const float* c, const float* d, float* to, size_t stride) {
  __m128 rows[4] = {_mm_loadu_ps(a), _mm_loadu_ps(b), _mm_loadu_ps(c), _mm_loadu_ps(d)};
  _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
  for (size_t i = 0; i < 4; i++) _mm_storeu_ps(to + i * stride, rows[i]);
}

inline Ints splatI(int32_t value) { return _mm256_set1_epi32(value); }
inline Ints loadI(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
inline void storeI(void* to, Ints value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }
inline Ints addI(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints subI(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
inline Ints maxI(Ints a, Ints b) { return _mm256_max_epi32(a, b); }
/** Reduces by a function of two vectors of four lanes. */
template <class F> inline int32_t reduce(Ints a, F combine) {
  __m128i v = combine(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  v = combine(v, _mm_shuffle_epi32(v, 0x4e));
  return _mm_cvtsi128_si32(combine(v, _mm_shuffle_epi32(v, 0xb1)));
}
inline int32_t reduceAdd(Ints a) {
  return reduce(a, [](__m128i b, __m128i c) { return _mm_add_epi32(b, c); });
}
inline int32_t reduceMax(Ints a) {
  return reduce(a, [](__m128i b, __m128i c) { return _mm_max_epi32(b, c); });
}
inline Ints bitAnd(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints bitOr(Ints a, Ints b) { return _mm256_or_si256(a, b); }
/** Lanes shifted to the right, zeros from the left; bits move between the bytes of a lane. */
template <int BITS> inline Ints shiftRight(Ints a) { return _mm256_srli_epi32(a, BITS); }
template <int BITS> inline Ints shiftLeft(Ints a) { return _mm256_slli_epi32(a, BITS); }
template <int BITS> inline Ints shiftRightSigned(Ints a) { return _mm256_srai_epi32(a, BITS); }
/** The same with a count for each lane. */
inline Ints shiftRightBy(Ints a, Ints counts) { return _mm256_srlv_epi32(a, counts); }
inline Ints shiftLeftBy(Ints a, Ints counts) { return _mm256_sllv_epi32(a, counts); }
inline Ints bitsOf(Floats a) { return _mm256_castps_si256(a); }
/** The lanes as bytes, saturated. */
inline __m128i packBytes(Ints a) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  return _mm_packs_epi16(words, words);
}
inline void storeBytes(uint8_t* to, Ints a) { _mm_storel_epi64(reinterpret_cast<__m128i*>(to), packBytes(a)); }
inline Floats toFloat(Ints a) { return _mm256_cvtepi32_ps(a); }
/** The 4 bytes at `from` in every lane. */
inline Ints splatBytes(const uint8_t* from) {
  int32_t word;
  memcpy(&word, from, 4);
  return _mm256_set1_epi32(word);
}

/** Parts of 128 bits. */
constexpr int PARTS = LANES / 4;

/** The same 16 bytes in every part. */
inline Ints splatPart(const uint8_t* from) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
/** The same four binary16 in every part. */
inline Floats splatHalves(const uint8_t* from) {
  int64_t halves;
  memcpy(&halves, from, 8);
  return _mm256_cvtph_ps(_mm_set1_epi64x(halves));
}
/** `value` in the lanes of the first part, zeros in the others. */
inline Ints firstPart(int32_t value) { return _mm256_zextsi128_si256(_mm_set1_epi32(value)); }
/** The same with the four numbers at `from`. */
inline Ints firstPart(const void* from) { return _mm256_zextsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(from))); }
/** The same four floats in every part. */
inline Floats splatPartF(const void* from) { return _mm256_broadcast_ps(static_cast<const __m128*>(from)); }
/** The number of its part in every lane. */
inline Ints partIndices() { return _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1); }
/** Stores the sum of the parts. */
inline void storePartSum(float* to, Floats a) {
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
}

/** Addresses of PARTS groups: each part of a vector comes from one of them. */
struct Groups {
  const uint8_t* at[PARTS];
};

/** 16 bytes of each group. */
inline Ints loadGroups(const Groups& groups, size_t offset) {
  const auto part = [&](int i) { return reinterpret_cast<const __m128i*>(groups.at[i] + offset); };
  return _mm256_loadu2_m128i(part(1), part(0));
}

/** Four binary16 of each group. */
inline Floats loadGroupHalves(const Groups& groups, size_t offset) {
  const auto part = [&](int i) {
    int64_t halves;
    memcpy(&halves, groups.at[i] + offset, 8);
    return halves;
  };
  return _mm256_cvtph_ps(_mm_set_epi64x(part(1), part(0)));
}

#if defined(__AVXVNNI__)
/** Adds four products of unsigned bytes of `a` with signed ones of `b` to each lane. */
inline Ints addProducts(Ints sum, Ints a, Ints b) {
#if defined(WINNOW_EMULATED)
  // the same instruction in the encoding of AVX-512, which test machines have
  asm("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  return sum;
#else
  return _mm256_dpbusd_avx_epi32(sum, a, b);
#endif
}
#endif

}  // namespace WINNOW_NAMESPACE
