/** Verbs of the level avx512: 16 lanes. */
#pragma once
#include "x86.h"

namespace WINNOW_NAMESPACE {
using Floats = __m512;
using Ints = __m512i;
constexpr int LANES = 16;
constexpr int NUM_REGISTERS = 32;
/** Tokens of the register tile of f32 GEMM, which has two vectors of rows. */
constexpr int FLOAT_TILE_TOKENS = 12;

inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats larger(Floats a, Floats b) { return _mm512_max_ps(b, a); }
/** The first `count` lanes, zeros in the others. */
inline Floats loadUpTo(const float* from, int count) { return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1 << count) - 1), from); }
inline void storeUpTo(float* to, Floats value, int count) { _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1 << count) - 1), value); }

inline Ints maxI(Ints a, Ints b) { return _mm512_max_epi32(a, b); }
inline int32_t reduceAdd(Ints a) { return _mm512_reduce_add_epi32(a); }
inline int32_t reduceMax(Ints a) { return _mm512_reduce_max_epi32(a); }
/** The lanes as bytes, saturated. */
inline void storeBytes(uint8_t* to, Ints a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtsepi32_epi8(a)); }

/** The same 16 bytes in every part. */
inline Ints splatPart(const uint8_t* from) { return _mm512_broadcast_i32x4(loadPart(from)); }
/** The same four binary16 in every part. */
inline Floats splatHalves(const uint8_t* from) { return _mm512_cvtph_ps(_mm256_set1_epi64x(loadAs<int64_t>(from))); }
/** `value` in the lanes of the first part, zeros in the others. */
inline Ints firstPart(int32_t value) { return _mm512_maskz_set1_epi32(0x000f, value); }
/** The same with the four numbers at `from`. */
inline Ints firstPart(const void* from) { return _mm512_zextsi128_si512(loadPart(from)); }
/** The same four floats in every part. */
inline Floats splatPartF(const void* from) { return _mm512_broadcast_f32x4(_mm_loadu_ps(static_cast<const float*>(from))); }
/** The number of its part in every lane. */
inline Ints partIndices() { return _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3); }
/** Stores the sum of the parts. */
inline void storePartSum(float* to, Floats a) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

/** 16 bytes of each of four groups. */
template <class GROUPS> inline Ints loadGroups(const GROUPS& groups, size_t offset) {
  __m512i v = _mm512_castsi128_si512(loadPart(groups.at[0] + offset));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, loadPart(groups.at[1] + offset));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, loadPart(groups.at[2] + offset));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, loadPart(groups.at[3] + offset));
}
/** Four binary16 of each group. */
template <class GROUPS> inline Floats loadGroupHalves(const GROUPS& groups, size_t offset) {
  const auto part = [&](int i) { return groups.halvesAt(i, offset); };
  return _mm512_cvtph_ps(_mm256_set_epi64x(part(3), part(2), part(1), part(0)));
}

/** Adds four products of unsigned bytes of `a` with signed ones of `b` to each lane. */
inline Ints addProducts(Ints sum, Ints a, Ints b) { return _mm512_dpbusd_epi32(sum, a, b); }

/** LANES stored numbers: signed bytes, nibbles less 8, unsigned bytes less 128, binary16, bfloat16. */
inline Floats widenBytes(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }
inline FloatVector<LANES> loadBytes(const uint8_t* from) { return widenBytes(loadPart(from)); }
inline FloatVector<LANES> loadNibbles(const uint8_t* from, bool isHigh) { return widenBytes(nibblesOf(loadPart(from), isHigh)); }
inline FloatVector<LANES> loadFlipped(const uint8_t* from) { return widenBytes(flipBytes(loadPart(from))); }
inline FloatVector<LANES> loadHalves(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline FloatVector<LANES> loadBrainFloats(const uint8_t* from) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

/** 16 numbers by their index in four bits. */
class NibbleTable {
 public:
  explicit NibbleTable(const int8_t* values) : floats_(widenBytes(loadPart(values))) {}

  /** The numbers of the low nibbles of 16 bytes, then those of the high ones. */
  void load(const uint8_t* from, FloatVector<LANES> (&to)[2]) const {
    const __m512i bytes = _mm512_cvtepu8_epi32(loadPart(from));
    to[0] = _mm512_permutexvar_ps(bytes, floats_);
    to[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), floats_);
  }

 private:
  __m512 floats_;
};
}  // namespace WINNOW_NAMESPACE
