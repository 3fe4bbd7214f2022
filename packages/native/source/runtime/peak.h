/** Loops that measure what a level can do on this machine: f32 multiply-adds, 8-bit products, and reading memory. */
#pragma once
#include "../simd/simd.h"

namespace WINNOW_NAMESPACE {

/** Independent sums, more than the latency of an instruction times its rate. */
constexpr int PEAK_SUMS = 12;

/** Keeps a result, so that no compiler removes the loop that computes it. */
template <class T> inline void keep(const T& value) { asm volatile("" : : "m"(value) : "memory"); }

/** Makes the compiler forget what a register holds, so that it computes with it again. */
inline void hide(Ints& value) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(value));
#else
  asm volatile("" : "+x"(value));
#endif
}

/** Multiply-adds on registers; returns their operations, two each. */
inline double peakFloats(uint64_t passes) {
  Floats sums[PEAK_SUMS];
  for (int i = 0; i < PEAK_SUMS; i++) sums[i] = splatF(static_cast<float>(i));
  Floats a = splatF(0.5f);
  keep(a);
  const Floats b = a;
  for (uint64_t pass = 0; pass < passes; pass++) {
#pragma GCC unroll 12
    for (int i = 0; i < PEAK_SUMS; i++) sums[i] = fma(sums[i], b, b);
  }
  keep(sums);
  return 2.0 * PEAK_SUMS * LANES * static_cast<double>(passes);
}

/** 8-bit products on registers; returns their operations, two each. */
inline double peakProducts(uint64_t passes) {
  Ints sums[PEAK_SUMS];
  Ints a = splatI(0x01020301);
  const Ints b = splatI(0x02010102);
  for (int i = 0; i < PEAK_SUMS; i++) sums[i] = splatI(i);
  for (uint64_t pass = 0; pass < passes; pass++) {
    hide(a);
#pragma GCC unroll 12
    for (int i = 0; i < PEAK_SUMS; i++) sums[i] = addProducts(sums[i], a, b);
  }
  keep(sums);
  return 2.0 * 4 * PEAK_SUMS * LANES * static_cast<double>(passes);
}

/** Reads whole steps of `sizeBytes` as four streams with prefetch; returns the bytes read. */
inline double readBytes(const uint8_t* from, uint64_t sizeBytes) {
  constexpr uint64_t step = sizeof(Ints) < 64 ? 64 : sizeof(Ints);
  constexpr uint64_t ahead = 1024;
  const uint64_t quarter = sizeBytes / 4 / step * step;
  Ints sums[4] = {splatI(0), splatI(0), splatI(0), splatI(0)};
  for (uint64_t at = 0; at < quarter; at += step) {
    for (int stream = 0; stream < 4; stream++) {
      const uint8_t* line = from + stream * quarter + at;
      __builtin_prefetch(line + ahead);
      for (uint64_t i = 0; i < step; i += sizeof(Ints)) sums[stream] = addI(sums[stream], loadI(line + i));
    }
  }
  keep(sums);
  return static_cast<double>(4 * quarter);
}

}  // namespace WINNOW_NAMESPACE
