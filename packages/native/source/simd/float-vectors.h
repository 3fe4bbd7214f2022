/**
 * Vectors of 4 to LANES f32 lanes, by the vector extension of the compiler: one source for tiles of few queries and of many. And
 * loads that widen LANES stored numbers to f32.
 */
#pragma once
#include "simd.h"

namespace WINNOW_NAMESPACE {

constexpr int NUM_REGISTERS = LANES == 16 ? 32 : 16;

template <int N> struct VectorTypes {
  typedef float Float __attribute__((vector_size(4 * N)));
  typedef int32_t Int __attribute__((vector_size(4 * N)));
};
template <int N> using FloatVector = typename VectorTypes<N>::Float;
template <int N> using IntVector = typename VectorTypes<N>::Int;

/** All lanes the same; subtracting zeros folds away and keeps -0. */
template <int N> inline FloatVector<N> splatTo(float value) { return value - FloatVector<N>{}; }
template <int N> inline FloatVector<N> loadFloats(const float* from) {
  FloatVector<N> value;
  memcpy(&value, from, sizeof value);
  return value;
}
template <int N> inline IntVector<N> loadInts(const int32_t* from) {
  IntVector<N> value;
  memcpy(&value, from, sizeof value);
  return value;
}
template <class V> inline void storeFloats(float* to, V value) { memcpy(to, &value, sizeof value); }

/** `b` where it is larger, else `a`: NaN in `b` is skipped, NaN in `a` stays. */
inline FloatVector<4> larger(FloatVector<4> a, FloatVector<4> b) { return _mm_max_ps(b, a); }
inline FloatVector<8> larger(FloatVector<8> a, FloatVector<8> b) { return _mm256_max_ps(b, a); }
/** a * b + c of vectors narrower than F32 */
inline FloatVector<4> fma(FloatVector<4> a, FloatVector<4> b, FloatVector<4> c) { return _mm_fmadd_ps(a, b, c); }

#if defined(__AVX512F__)
inline FloatVector<8> fma(FloatVector<8> a, FloatVector<8> b, FloatVector<8> c) { return _mm256_fmadd_ps(a, b, c); }
inline FloatVector<16> larger(FloatVector<16> a, FloatVector<16> b) { return _mm512_max_ps(b, a); }
inline FloatVector<LANES> widen(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }
inline FloatVector<LANES> loadHalves(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline FloatVector<LANES> loadBrainFloats(const uint8_t* from) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}
#else
inline FloatVector<LANES> widen(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }
inline FloatVector<LANES> loadHalves(const uint8_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline FloatVector<LANES> loadBrainFloats(const uint8_t* from) {
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}
#endif

inline float halfToFloat(const uint8_t* from) {
  uint16_t half;
  memcpy(&half, from, 2);
  return _cvtsh_ss(half);
}

/** 16 signed bytes times a scale, as f32. */
inline void widenBytes(__m128i bytes, float scale, float* to) {
  const FloatVector<LANES> factor = splatTo<LANES>(scale);
  storeFloats(to, widen(bytes) * factor);
  if constexpr (LANES == 8) storeFloats(to + 8, widen(_mm_srli_si128(bytes, 8)) * factor);
}

}  // namespace WINNOW_NAMESPACE
