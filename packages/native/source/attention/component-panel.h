/**
 * Microkernels of flash attention for few queries, as in decoding: lanes are components of rows, so that they are all used by any
 * number of queries. Queries and outputs are `[QUERIES][depth]`, padded with zeros to whole vectors; keys and values `[rows][depth]`
 * are as in the cache; logits are `[rows][QUERIES]`.
 */
#pragma once
#include <utility>
#include "panel.h"

namespace WINNOW_NAMESPACE {
/** Halves of the groups of lanes of a and b, whose lanes are GROUPS groups: those of a at even places, of b at odd ones. */
template <int N, int GROUPS, int HALF, size_t... LANE>
inline FloatVector<N> interleaveHalves(FloatVector<N> a, FloatVector<N> b, std::index_sequence<LANE...>) {
  constexpr int WIDTH = N / GROUPS / 2;
  return __builtin_shufflevector(a, b, (LANE / WIDTH % 2 * N + LANE / WIDTH / 2 * 2 * WIDTH + HALF * WIDTH + LANE % WIDTH)...);
}

/** Sums of the lanes of N vectors, in the order of the vectors. */
template <int N, int GROUPS = 1> inline FloatVector<N> sumEach(FloatVector<N> (&vectors)[N]) {
  constexpr int COUNT = N / GROUPS / 2;
  constexpr auto lanes = std::make_index_sequence<N>();
#pragma GCC unroll 8
  for (int i = 0; i < COUNT; i++) {
    const auto a = vectors[i], b = vectors[i + COUNT];
    vectors[i] = interleaveHalves<N, GROUPS, 0>(a, b, lanes) + interleaveHalves<N, GROUPS, 1>(a, b, lanes);
  }
  if constexpr (COUNT == 1) return vectors[0];
  else return sumEach<N, 2 * GROUPS>(vectors);
}

template <int QUERIES_> struct ComponentPanel {
  static constexpr int QUERIES = QUERIES_;
  /** Logits of a row are one vector, or two where vectors are short. */
  static constexpr int WIDTH = QUERIES < LANES ? QUERIES : LANES;
  static constexpr int VECTORS = QUERIES / WIDTH;
  using Float = FloatVector<WIDTH>;
  /** Rows that are scored at once: their logits are whole vectors, and enough sums to hide the latency of multiply-adds. */
  static constexpr int ROWS = (LANES < 8 ? 8 : LANES) / QUERIES;
  static constexpr int SUMS = ROWS * QUERIES;
  /** Vectors of an output in the register tile, which has half of the registers. */
  static constexpr int COLUMNS = NUM_REGISTERS / 2 / QUERIES;

  /** Numbers of the queries or outputs of the panel, and the place of a component. */
  static size_t sizeOf(int32_t depth) { return static_cast<size_t>(QUERIES) * strideOf(depth); }
  static size_t placeOf(int32_t lane, int32_t depth) { return static_cast<size_t>(lane) * strideOf(depth); }
  static constexpr int32_t STEP = 1;
  static constexpr bool READS_STORED = true;

  /** Computes the logits of `count` rows and may overwrite those of the next ones up to a multiple of ROWS. */
  static void score(float* logits, const StoredRows& keys, int32_t count, int32_t depth, const float* queries, const Prefetch& ahead) {
    withReader(keys.dtype, [&](auto reader) { scoreAll<decltype(reader)>(logits, keys, count, depth, queries, ahead); });
  }
  static int scoreSteps(int32_t count, int32_t depth) { return (count + ROWS - 1) / ROWS * ROWS * (depth / LANES) + 1; }

  /** `outputs = outputs * factors + weights * values` */
  static void accumulate(float* outputs, const StoredRows& values, int32_t count, int32_t depth, const float* weights, const float* factors,
                         const Prefetch& ahead) {
    withReader(values.dtype, [&](auto reader) { addAll<decltype(reader)>(outputs, values, count, depth, weights, factors, ahead); });
  }
  static int accumulateSteps(int32_t count, int32_t depth) { return count * ((depth + LANES - 1) / LANES); }

 private:
  static int32_t strideOf(int32_t depth) { return (depth + LANES - 1) / LANES * LANES; }

  template <class READER>
  [[gnu::noinline]] static void scoreAll(float* logits, const StoredRows& keys, int32_t count, int32_t depth, const float* queries,
                                         Prefetch ahead) {
    for (int32_t row = 0; row < count; row += ROWS, logits += SUMS) {
      const uint8_t* rows[ROWS];
      for (int r = 0; r < ROWS; r++) rows[r] = keys.at + static_cast<size_t>(row + r < count ? row + r : count - 1) * keys.rowBytes;
      FloatVector<LANES> sums[SUMS / LANES][LANES] = {};
      forVectors(depth, [&](int32_t i, int32_t offset) {
        addProducts(sums, rows, queries + i + offset, strideOf(depth), [&](const uint8_t* at) { return READER::load(at, i, offset); });
        for (int r = 0; r < ROWS; r++) ahead.touch();
      });
      const int32_t whole = depth / LANES * LANES;
      if (whole < depth) {
        addProducts(sums, rows, queries + whole, strideOf(depth),
                    [&](const uint8_t* at) { return READER::rest(at, whole, depth - whole); });
      }
#pragma GCC unroll 2
      for (int i = 0; i < SUMS / LANES; i++) storeFloats(logits + i * LANES, sumEach<LANES>(sums[i]));
    }
  }

  template <class LOAD>
  static inline void addProducts(FloatVector<LANES> (&sums)[SUMS / LANES][LANES], const uint8_t* const (&rows)[ROWS], const float* queries,
                                 int32_t stride, LOAD loadRow) {
    FloatVector<LANES> keys[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) keys[r] = loadRow(rows[r]);
#pragma GCC unroll 8
    for (int q = 0; q < QUERIES; q++) {
      const auto query = loadFloats<LANES>(queries + q * stride);
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; r++) {
        auto& sum = sums[(r * QUERIES + q) / LANES][(r * QUERIES + q) % LANES];
        sum = fma(query, keys[r], sum);
      }
    }
  }

  template <class READER>
  [[gnu::noinline]] static void addAll(float* outputs, const StoredRows& values, int32_t count, int32_t depth, const float* weights,
                                       const float* factors, Prefetch ahead) {
    const int32_t stride = strideOf(depth);
    int32_t at = 0;
    for (; at + COLUMNS * LANES <= depth; at += COLUMNS * LANES) {
      const int32_t i = at / 32 * 32, offset = at % 32;
      addRows<COLUMNS>(outputs + at, stride, values, count, weights, factors, ahead,
                       [&](const uint8_t* row, int c) { return READER::load(row, i + c * LANES / 32 * 32, offset + c * LANES % 32); });
    }
    for (; at + LANES <= depth; at += LANES) {
      addRows<1>(outputs + at, stride, values, count, weights, factors, ahead,
                 [&](const uint8_t* row, int) { return READER::load(row, at / 32 * 32, at % 32); });
    }
    if (at == depth) return;
    addRows<1>(outputs + at, stride, values, count, weights, factors, ahead,
               [&](const uint8_t* row, int) { return READER::rest(row, at, depth - at); });
  }

  /** A register tile of C vectors of each output. */
  template <int C, class LOAD>
  static inline void addRows(float* outputs, int32_t stride, const StoredRows& values, int32_t count, const float* weights,
                             const float* factors, Prefetch& ahead, LOAD loadVector) {
    FloatVector<LANES> sums[QUERIES][C];
#pragma GCC unroll 8
    for (int q = 0; q < QUERIES; q++) {
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) sums[q][c] = loadFloats<LANES>(outputs + q * stride + c * LANES) * factors[q];
    }
    const uint8_t* at = values.at;
    for (int32_t row = 0; row < count; row++, at += values.rowBytes, weights += QUERIES) {
      FloatVector<LANES> value[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) {
        value[c] = loadVector(at, c);
        ahead.touch();
      }
#pragma GCC unroll 8
      for (int q = 0; q < QUERIES; q++) {
        const auto weight = splatTo<LANES>(weights[q]);
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) sums[q][c] = fma(weight, value[c], sums[q][c]);
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < QUERIES; q++) {
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) storeFloats(outputs + q * stride + c * LANES, sums[q][c]);
    }
  }
};
}  // namespace WINNOW_NAMESPACE
