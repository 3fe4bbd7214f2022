/** Verbs of vectors of 4 and 8 lanes, which all levels of x86-64 have. */
#pragma once
#include <immintrin.h>
#include "vectors.h"

namespace WINNOW_NAMESPACE {
/** `b` where it is larger, else `a`: NaN in `b` is skipped, NaN in `a` stays. */
inline FloatVector<4> larger(FloatVector<4> a, FloatVector<4> b) { return _mm_max_ps(b, a); }
inline FloatVector<8> larger(FloatVector<8> a, FloatVector<8> b) { return _mm256_max_ps(b, a); }
/** a * b + c */
inline FloatVector<4> fma(FloatVector<4> a, FloatVector<4> b, FloatVector<4> c) { return _mm_fmadd_ps(a, b, c); }
inline FloatVector<8> fma(FloatVector<8> a, FloatVector<8> b, FloatVector<8> c) { return _mm256_fmadd_ps(a, b, c); }

inline __m128i loadPart(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

/** Stores the columns of a 4x4 matrix of floats, `stride` floats apart; the arguments are its rows. */
inline void storeColumns(const float* a, const float* b, const float* c, const float* d, float* to, size_t stride) {
  __m128 rows[4] = {_mm_loadu_ps(a), _mm_loadu_ps(b), _mm_loadu_ps(c), _mm_loadu_ps(d)};
  _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
  for (size_t i = 0; i < 4; i++) _mm_storeu_ps(to + i * stride, rows[i]);
}

inline float halfToFloat(const uint8_t* from) { return _cvtsh_ss(loadAs<uint16_t>(from)); }

/** Four binary16 times a factor. */
inline void storeFourHalves(float* to, const uint8_t* from, float factor) {
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  _mm_storeu_ps(to, _mm_mul_ps(_mm_cvtph_ps(halves), _mm_set1_ps(factor)));
}

/** The low or the high nibbles of bytes, less 8. */
inline __m128i nibblesOf(__m128i bytes, bool isHigh) {
  const __m128i nibbles = _mm_and_si128(isHigh ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
  return _mm_sub_epi8(nibbles, _mm_set1_epi8(8));
}
inline __m128i flipBytes(__m128i bytes) { return _mm_xor_si128(bytes, _mm_set1_epi8(-128)); }
}  // namespace WINNOW_NAMESPACE
