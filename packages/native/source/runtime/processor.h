/** Whether this processor has the instructions of a level, and a test that runs some of each kind. */
#pragma once
#include <immintrin.h>
#include "level.h"

namespace WINNOW_NAMESPACE {

#if defined(__AVX512VNNI__)

inline bool isAvailable() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
}

/** 64 products of 2 and -3, and 16 sums 1.5 * 2 + 1. */
inline bool selfTest() {
  alignas(64) int32_t sums[16];
  alignas(64) float floats[16];
  const __m512i products = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(2), _mm512_set1_epi8(-3));
  _mm512_store_si512(sums, products);
  const __m512 halves = _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_set1_ps(1.5f), 0));
  _mm512_store_ps(floats, _mm512_fmadd_ps(halves, _mm512_set1_ps(2.0f), _mm512_set1_ps(1.0f)));
  bool isRight = true;
  for (int i = 0; i < 16; i++) isRight = isRight && sums[i] == -24 && floats[i] == 4.0f;
  return isRight;
}

#elif defined(__AVX2__)

inline bool isAvailable() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

/** 32 products of 2 and -3, and 8 sums 1.5 * 2 + 1. */
inline bool selfTest() {
  alignas(32) int32_t sums[8];
  alignas(32) float floats[8];
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(2), _mm256_set1_epi8(-3));
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums), _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  const __m256 halves = _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_set1_ps(1.5f), 0));
  _mm256_store_ps(floats, _mm256_fmadd_ps(halves, _mm256_set1_ps(2.0f), _mm256_set1_ps(1.0f)));
  bool isRight = true;
  for (int i = 0; i < 8; i++) isRight = isRight && sums[i] == -24 && floats[i] == 4.0f;
  return isRight;
}

#endif

}  // namespace WINNOW_NAMESPACE
