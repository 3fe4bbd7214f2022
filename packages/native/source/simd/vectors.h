/** Vectors of N f32 or i32 lanes, by the vector extension of the compiler: one source for tiles of few queries and of many. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "level.h"

namespace WINNOW_NAMESPACE {
template <int N> struct VectorTypes {
  typedef float Float __attribute__((vector_size(4 * N)));
  typedef int32_t Int __attribute__((vector_size(4 * N)));
};
template <int N> using FloatVector = typename VectorTypes<N>::Float;
template <int N> using IntVector = typename VectorTypes<N>::Int;

/** What lies at an address of any alignment. */
template <class T> inline T loadAs(const void* from) {
  T value;
  memcpy(&value, from, sizeof value);
  return value;
}

/** All lanes the same; subtracting zeros folds away and keeps -0. */
template <int N> inline FloatVector<N> splatTo(float value) { return value - FloatVector<N>{}; }
template <int N> inline FloatVector<N> loadFloats(const float* from) { return loadAs<FloatVector<N>>(from); }
template <int N> inline IntVector<N> loadInts(const int32_t* from) { return loadAs<IntVector<N>>(from); }
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
}  // namespace WINNOW_NAMESPACE
