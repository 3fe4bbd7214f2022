/** The largest of some scores, by their ranks; ties go to lower indices. */
#pragma once
#include <stdint.h>
#include <string.h>
#include "../simd/level.h"

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

/** Calls `select` with the indices of the k largest of `count` ranks, `k <= count`, in ascending order. */
template <class F> inline void selectLargest(const uint32_t* ranks, int32_t count, int32_t k, F select) {
  if (k <= 0) return;
  const uint32_t threshold = kthLargest(ranks, count, k);
  int32_t numTied = k;
  for (int32_t i = 0; i < count; i++) numTied -= ranks[i] > threshold ? 1 : 0;
  for (int32_t i = 0; i < count; i++) {
    if (ranks[i] < threshold) continue;
    if (ranks[i] == threshold && numTied-- <= 0) continue;
    select(i);
  }
}

/** Writes the indices of `count` ranks to `order`, the largest first: a radix sort of four digits. `work` has room for `count`. */
inline void sortFalling(const uint32_t* ranks, int32_t count, int32_t* order, int32_t* work) {
  for (int32_t i = 0; i < count; i++) order[i] = i;
  for (int shift = 0; shift < 32; shift += 8) {
    const auto digitOf = [&](int32_t i) { return ~ranks[i] >> shift & 255; };
    int32_t starts[257] = {};
    for (int32_t i = 0; i < count; i++) starts[digitOf(i) + 1]++;
    for (int32_t digit = 0; digit < 256; digit++) starts[digit + 1] += starts[digit];
    for (int32_t i = 0; i < count; i++) work[starts[digitOf(order[i])]++] = order[i];
    int32_t* sorted = work;
    work = order;
    order = sorted;
  }
}
}  // namespace WINNOW_NAMESPACE
