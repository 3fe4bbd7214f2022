/** The pages with the largest scores. */
#pragma once
#include <stdint.h>
#include <string.h>
#include "../runtime/level.h"

namespace WINNOW_NAMESPACE {

/** An integer whose unsigned order is that of scores; -0 equals 0, and NaN counts as -Infinity. */
inline uint32_t rankOf(float score) {
  const float ordered = score == score ? score + 0.0f : -__builtin_inff();
  uint32_t bits;
  memcpy(&bits, &ordered, 4);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/** The k-th largest of `count` ranks, `1 <= k <= count`: bit by bit, the largest number that at least k ranks reach. */
inline uint32_t kthLargest(const uint32_t* ranks, int32_t count, int32_t k) {
  uint32_t threshold = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    int32_t numReaching = 0;
    for (int32_t i = 0; i < count; i++) numReaching += ranks[i] >= (threshold | bit) ? 1 : 0;
    if (numReaching >= k) threshold |= bit;
  }
  return threshold;
}

}  // namespace WINNOW_NAMESPACE
