/**
 * The verbs of a level: vectors of LANES f32 or i32 lanes, and 8-bit dot products. A kernel is one source over these verbs,
 * compiled once per level.
 */
#pragma once
#if defined(__AVX512VNNI__)
#include "avx512.h"
#else
#include "avx2.h"
#endif
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#include "usdot.h"
#else
#include "maddubs.h"
#endif

namespace WINNOW_NAMESPACE {

/**
 * Prefetches what an ascending stream reads two pages later, into the L2 cache: the hardware prefetches within a page and starts again
 * in the next one.
 */
inline void prefetchStream(const uint8_t* at, size_t sizeBytes) {
  for (size_t i = 0; i < sizeBytes; i += 64) __builtin_prefetch(at + 8192 + i, 0, 2);
}

}  // namespace WINNOW_NAMESPACE
