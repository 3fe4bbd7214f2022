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

/** Sum of the lanes, in pairs. */
template <int N> inline float sumOf(FloatVector<N> value) {
  if constexpr (N == 1) return value[0];
  else {
    float lanes[N];
    storeFloats(lanes, value);
    return sumOf<N / 2>(loadFloats<N / 2>(lanes) + loadFloats<N / 2>(lanes + N / 2));
  }
}
/** The largest of the lanes, of which none is NaN. */
template <int N> inline float maximumOf(FloatVector<N> value) {
  float top = value[0];
  for (int lane = 1; lane < N; lane++) top = value[lane] > top ? value[lane] : top;
  return top;
}

/** `b` where it is larger, else `a`: NaN in `b` is skipped, NaN in `a` stays. */
inline FloatVector<4> larger(FloatVector<4> a, FloatVector<4> b) { return _mm_max_ps(b, a); }
inline FloatVector<8> larger(FloatVector<8> a, FloatVector<8> b) { return _mm256_max_ps(b, a); }
/** a * b + c of vectors narrower than F32 */
inline FloatVector<4> fma(FloatVector<4> a, FloatVector<4> b, FloatVector<4> c) { return _mm_fmadd_ps(a, b, c); }

#if defined(__AVX512F__)
inline FloatVector<8> fma(FloatVector<8> a, FloatVector<8> b, FloatVector<8> c) { return _mm256_fmadd_ps(a, b, c); }
inline FloatVector<16> larger(FloatVector<16> a, FloatVector<16> b) { return _mm512_max_ps(b, a); }
inline __m128i loadBytes(const uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline FloatVector<LANES> widen(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }
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
  explicit NibbleTable(const int8_t* values) : floats_(widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)))) {}

  /** The numbers of the low nibbles of 16 bytes, then those of the high ones. */
  void load(const uint8_t* from, FloatVector<LANES> (&to)[2]) const {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    to[0] = _mm512_permutexvar_ps(bytes, floats_);
    to[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), floats_);
  }

 private:
  __m512 floats_;
};
#else
inline __m128i loadBytes(const uint8_t* from) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)); }
inline FloatVector<LANES> widen(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }
inline FloatVector<LANES> loadHalves(const uint8_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline FloatVector<LANES> loadBrainFloats(const uint8_t* from) {
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}
class NibbleTable {
 public:
  explicit NibbleTable(const int8_t* values) : bytes_(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values))) {}

  void load(const uint8_t* from, FloatVector<LANES> (&to)[4]) const {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i low = _mm_shuffle_epi8(bytes_, _mm_and_si128(bytes, mask));
    const __m128i high = _mm_shuffle_epi8(bytes_, _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
    to[0] = widen(low);
    to[1] = widen(_mm_unpackhi_epi64(low, low));
    to[2] = widen(high);
    to[3] = widen(_mm_unpackhi_epi64(high, high));
  }

 private:
  __m128i bytes_;
};
#endif

/** LANES unsigned bytes less 128. */
inline FloatVector<LANES> loadFlipped(const uint8_t* from) {
  return widen(_mm_xor_si128(loadBytes(from), _mm_set1_epi8(-128)));
}

inline float halfToFloat(const uint8_t* from) {
  uint16_t half;
  memcpy(&half, from, 2);
  return _cvtsh_ss(half);
}

/** Four binary16 times a factor. */
inline void storeFourHalves(float* to, const uint8_t* from, float factor) {
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  _mm_storeu_ps(to, _mm_mul_ps(_mm_cvtph_ps(halves), _mm_set1_ps(factor)));
}

}  // namespace WINNOW_NAMESPACE
