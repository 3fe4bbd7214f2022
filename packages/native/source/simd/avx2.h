/** Verbs of the levels avx2 and avxvnni: 8 lanes. 8-bit dot products are in maddubs.h and usdot.h. */
#pragma once
#include "x86.h"

namespace WINNOW_NAMESPACE {
using Floats = __m256;
using Ints = __m256i;
constexpr int LANES = 8;
constexpr int NUM_REGISTERS = 16;
constexpr int FLOAT_TILE_TOKENS = 6;

/** -1 in the first `count` lanes, else 0. */
inline __m256i firstLanes(int count) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }
inline Floats loadUpTo(const float* from, int count) { return _mm256_maskload_ps(from, firstLanes(count)); }
inline void storeUpTo(float* to, Floats value, int count) { _mm256_maskstore_ps(to, firstLanes(count), value); }

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
/** The lanes as bytes, saturated. */
inline __m128i packBytes(Ints a) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  return _mm_packs_epi16(words, words);
}
inline void storeBytes(uint8_t* to, Ints a) { _mm_storel_epi64(reinterpret_cast<__m128i*>(to), packBytes(a)); }

inline Ints splatPart(const uint8_t* from) { return _mm256_broadcastsi128_si256(loadPart(from)); }
inline Floats splatHalves(const uint8_t* from) { return _mm256_cvtph_ps(_mm_set1_epi64x(loadAs<int64_t>(from))); }
inline Ints firstPart(int32_t value) { return _mm256_zextsi128_si256(_mm_set1_epi32(value)); }
inline Ints firstPart(const void* from) { return _mm256_zextsi128_si256(loadPart(from)); }
inline Floats splatPartF(const void* from) { return _mm256_broadcast_ps(static_cast<const __m128*>(from)); }
inline Ints partIndices() { return _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1); }
inline void storePartSum(float* to, Floats a) { _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1))); }

template <class GROUPS> inline Ints loadGroups(const GROUPS& groups, size_t offset) {
  const auto part = [&](int i) { return reinterpret_cast<const __m128i*>(groups.at[i] + offset); };
  return _mm256_loadu2_m128i(part(1), part(0));
}
template <class GROUPS> inline Floats loadGroupHalves(const GROUPS& groups, size_t offset) {
  return _mm256_cvtph_ps(_mm_set_epi64x(groups.halvesAt(1, offset), groups.halvesAt(0, offset)));
}

#if defined(__AVXVNNI__)
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

inline __m128i loadEight(const uint8_t* from) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)); }
inline Floats widenBytes(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }
inline FloatVector<LANES> loadBytes(const uint8_t* from) { return widenBytes(loadEight(from)); }
inline FloatVector<LANES> loadNibbles(const uint8_t* from, bool isHigh) { return widenBytes(nibblesOf(loadEight(from), isHigh)); }
inline FloatVector<LANES> loadFlipped(const uint8_t* from) { return widenBytes(flipBytes(loadEight(from))); }
inline FloatVector<LANES> loadHalves(const uint8_t* from) { return _mm256_cvtph_ps(loadPart(from)); }
inline FloatVector<LANES> loadBrainFloats(const uint8_t* from) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(loadPart(from)), 16));
}

class NibbleTable {
 public:
  explicit NibbleTable(const int8_t* values) : bytes_(loadPart(values)) {}

  void load(const uint8_t* from, FloatVector<LANES> (&to)[4]) const {
    const __m128i bytes = loadPart(from), mask = _mm_set1_epi8(15);
    const __m128i low = _mm_shuffle_epi8(bytes_, _mm_and_si128(bytes, mask));
    const __m128i high = _mm_shuffle_epi8(bytes_, _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
    to[0] = widenBytes(low);
    to[1] = widenBytes(_mm_unpackhi_epi64(low, low));
    to[2] = widenBytes(high);
    to[3] = widenBytes(_mm_unpackhi_epi64(high, high));
  }

 private:
  __m128i bytes_;
};
}  // namespace WINNOW_NAMESPACE
