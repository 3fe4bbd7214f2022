/** Whether this processor has the instructions of a level, and a test that runs some of each kind. */
#pragma once
#include "../simd/simd.h"

namespace WINNOW_NAMESPACE {

inline bool isAvailable() {
  const bool hasAvx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#if defined(__AVX512VNNI__) || defined(WINNOW_EMULATED)
  return hasAvx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#elif defined(__AVXVNNI__)
  return hasAvx2 && __builtin_cpu_supports("avxvnni");
#else
  return hasAvx2;
#endif
}

/** Products of 2 and -3, and sums 1.5 * 2 + 1, in every lane. */
inline bool selfTest() {
  const Ints codes[1] = {splatI(0x02020202)};
  uint8_t x[sizeof(Ints)];
  memset(x, -3, sizeof x);
  const uint8_t halves[8] = {0, 0x3e, 0, 0x3e, 0, 0x3e, 0, 0x3e};
  int32_t sums[LANES];
  float floats[LANES];
  storeI(sums, dotRepeated<4>(codes, x, splatI(0)));
  store(floats, fma(splatHalves(halves), splatF(2), splatF(1)));
  bool isRight = true;
  for (int i = 0; i < LANES; i++) isRight = isRight && sums[i] == -24 && floats[i] == 4.0f;
  return isRight;
}

}  // namespace WINNOW_NAMESPACE
