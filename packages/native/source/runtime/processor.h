/**
 * Whether this processor has the instructions of a level, a test that runs some of each kind, and loops that measure what they can do:
 * f32 multiply-adds, 8-bit products, and reading memory.
 */
#pragma once
#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include "../simd/simd.h"

namespace WINNOW_NAMESPACE {
#if defined(__aarch64__)
inline bool isAvailable() {
#if defined(__APPLE__)
#if defined(__ARM_FEATURE_MATMUL_INT8)
  const char* const name = "hw.optional.arm.FEAT_I8MM";
#else
  const char* const name = "hw.optional.arm.FEAT_DotProd";
#endif
  int32_t value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
#elif defined(__ARM_FEATURE_MATMUL_INT8)
  return (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0 && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
}
#else
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
#endif

#if defined(__AVX512VNNI__)
/** Whether there are tiles of AMX with bfloat16, and the system lets this process use them. */
inline bool hasTiles() {
#if defined(WINNOW_EMULATED)
  return isAvailable();
#elif defined(__linux__)
  unsigned a, b, c, d, low, high;
  // bits 22 and 24: AMX-BF16, AMX-TILE
  if (!isAvailable() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d >> 22 & 5) != 5) return false;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  // Linux gives a process the state of tiles, bit 18, on request: ARCH_REQ_XCOMP_PERM
  return (low >> 17 & 3) == 3 && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}
#endif

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

/** Independent sums, more than the latency of an instruction times its rate. */
constexpr int PEAK_SUMS = 12;

/** Keeps a result, so that no compiler removes the loop that computes it. */
template <class T> inline void keep(const T& value) { asm volatile("" : : "m"(value) : "memory"); }

/** Makes the compiler forget what a register holds, so that it computes with it again. */
inline void hide(Ints& value) {
#if defined(__aarch64__)
  asm volatile("" : "+w"(value));
#else
  asm volatile("" : "+v"(value));
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
  Ints a = splatI(0x01020301), b = splatI(0x02010102);
  for (int i = 0; i < PEAK_SUMS; i++) sums[i] = splatI(i);
  for (uint64_t pass = 0; pass < passes; pass++) {
#pragma GCC unroll 12
    for (int i = 0; i < PEAK_SUMS; i++) {
      Ints sum = addProducts(sums[i], a, b);
      hide(a), hide(sum); // so that no two sums share a product; without the second, GCC 12 stores every sum
      sums[i] = sum;
    }
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
