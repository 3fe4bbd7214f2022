/**
 * Microkernels of flash attention over a panel: VECTORS vectors of WIDTH queries, a query per lane. Queries [depth][lanes] and
 * outputs [depth][lanes] are transposed, keys and values [rows][depth] are as in the cache, and logits, later softmax weights, are
 * [rows][lanes]. Elements of keys and values are broadcast, so that nothing is shuffled.
 */
#pragma once
#include <math.h>
#include <initializer_list>
#include "kv-rows.h"

namespace WINNOW_NAMESPACE {
/** Memory that a GEMM touches ahead of its use, a little at each step, so that computing hides the time of reading. */
class Prefetch {
 public:
  Prefetch() : Prefetch(nullptr, 0) {}
  Prefetch(const uint8_t* from, size_t sizeBytes) : at_(from), sizeBytes_(sizeBytes) {}

  void spread(int numSteps) { step_ = sizeBytes_ / static_cast<size_t>(numSteps); }
  void stop() { step_ = 0; }
  void touch() {
    __builtin_prefetch(at_, 0, 2);
    at_ += step_;
  }

 private:
  const uint8_t* at_;
  size_t sizeBytes_;
  size_t step_ = 0;
};

/**
 * `c[ROWS][lanes] = start + sum over k of w(row, k) x[k][lanes]`; start is c times a factor per lane, or 0 without factors. Element
 * (row, k) of w is at `row * stride + k`, or if TRANSPOSED at `k * stride + row`.
 */
template <class P, int ROWS, bool TRANSPOSED>
inline void gemmTile(float* c, const float* w, size_t stride, const float* x, int depth, const float* factors, Prefetch& ahead) {
  typename P::Float sums[ROWS][P::VECTORS];
#pragma GCC unroll 16
  for (int row = 0; row < ROWS; row++) {
#pragma GCC unroll 2
    for (int v = 0; v < P::VECTORS; v++) {
      sums[row][v] = typename P::Float{};
      if (!TRANSPOSED) continue;
      sums[row][v] = loadFloats<P::WIDTH>(c + row * P::QUERIES + v * P::WIDTH) * loadFloats<P::WIDTH>(factors + v * P::WIDTH);
    }
  }
  // in bytes, eight rows need only multiples of four distances
  const size_t one = stride * sizeof(float), three = 3 * one, five = 5 * one, seven = 7 * one;
  const auto* low = reinterpret_cast<const uint8_t*>(w);
  const uint8_t* high = low + 8 * one;
  const float* const end = x + depth * P::QUERIES;
  for (; x < end; x += P::QUERIES) {
    typename P::Float columns[P::VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < P::VECTORS; v++) columns[v] = loadFloats<P::WIDTH>(x + v * P::WIDTH);
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++) {
      const size_t distances[8] = {0, one, 2 * one, three, 4 * one, five, 2 * three, seven};
      const uint8_t* at = TRANSPOSED ? low + 4 * row : (row < 8 ? low : high) + distances[row % 8];
      const auto element = splatTo<P::WIDTH>(*reinterpret_cast<const float*>(at));
#pragma GCC unroll 2
      for (int v = 0; v < P::VECTORS; v++) sums[row][v] = fma(element, columns[v], sums[row][v]);
    }
    ahead.touch();
    low += TRANSPOSED ? one : sizeof(float);
    high += sizeof(float);
  }
#pragma GCC unroll 16
  for (int row = 0; row < ROWS; row++) {
#pragma GCC unroll 2
    for (int v = 0; v < P::VECTORS; v++) storeFloats(c + row * P::QUERIES + v * P::WIDTH, sums[row][v]);
  }
}

/** The same for any number of rows; `ahead` takes `gemmSteps` steps. */
template <class P, bool TRANSPOSED>
[[gnu::noinline]] void gemmRows(float* c, const float* w, int numRows, size_t stride, const float* x, int depth, const float* factors,
                                Prefetch ahead) {
  const size_t step = TRANSPOSED ? 1 : stride;
  for (; numRows >= P::ROWS; numRows -= P::ROWS, c += P::ROWS * P::QUERIES, w += P::ROWS * step) {
    gemmTile<P, P::ROWS, TRANSPOSED>(c, w, stride, x, depth, factors, ahead);
  }
  for (; numRows >= 4; numRows -= 4, c += 4 * P::QUERIES, w += 4 * step) {
    gemmTile<P, 4, TRANSPOSED>(c, w, stride, x, depth, factors, ahead);
  }
  for (; numRows > 0; numRows--, c += P::QUERIES, w += step) gemmTile<P, 1, TRANSPOSED>(c, w, stride, x, depth, factors, ahead);
}

/** Number of steps of `gemmRows`. */
template <class P> constexpr int gemmSteps(int numRows, int depth) {
  const int rest = numRows % P::ROWS;
  return (numRows / P::ROWS + rest / 4 + rest % 4) * depth;
}

template <int WIDTH_, int VECTORS_> struct Panel {
  static constexpr int WIDTH = WIDTH_;
  static constexpr int VECTORS = VECTORS_;
  static constexpr int QUERIES = WIDTH * VECTORS;
  /** Rows of a register tile: sums, the vectors of the right-hand side and one broadcast element fill the registers. */
  static constexpr int ROWS = VECTORS == 1 ? (NUM_REGISTERS == 32 ? 16 : 12) : (NUM_REGISTERS == 32 ? 8 : 6);
  using Float = FloatVector<WIDTH>;

  /** Numbers of the queries or outputs of a panel; the place of the first component of a lane, and the distance to the next. */
  static size_t sizeOf(int32_t depth) { return static_cast<size_t>(QUERIES) * depth; }
  static size_t placeOf(int32_t lane, int32_t depth) { return lane / QUERIES * sizeOf(depth) + lane % QUERIES; }
  static constexpr int32_t STEP = QUERIES;
  /** Whether rows may have any dtype; else they are f32. */
  static constexpr bool READS_STORED = false;

  /** Computes the logits of `count` rows; `ahead` takes `scoreSteps` steps. */
  static void score(float* logits, const StoredRows& keys, int32_t count, int32_t depth, const float* queries, const Prefetch& ahead) {
    gemmRows<Panel, false>(logits, reinterpret_cast<const float*>(keys.at), count, depth, queries, depth, nullptr, ahead);
  }
  static int scoreSteps(int32_t count, int32_t depth) { return gemmSteps<Panel>(count, depth); }
  /** `outputs = outputs * factors + weights * values`; `ahead` takes `accumulateSteps` steps. */
  static void accumulate(float* outputs, const StoredRows& values, int32_t count, int32_t depth, const float* weights, const float* factors,
                         const Prefetch& ahead) {
    gemmRows<Panel, true>(outputs, reinterpret_cast<const float*>(values.at), depth, depth, weights, count, factors, ahead);
  }
  static int accumulateSteps(int32_t count, int32_t depth) { return gemmSteps<Panel>(depth, count); }
};

/** Magnitudes of at most 2^22 plus this have their integer part in the low bits. */
constexpr float ROUNDING = 0x1.8p23f;

/**
 * exp of numbers up to 0: 2^(x / ln 2), 0 below 2^-126, NaN for NaN. The polynomial of degree 6 is within 2.2e-9 of 2^r over
 * [-1/2, 1/2] (least squares of the relative error), which is below rounding; rounding x / ln 2 adds |x| 2^-24.
 */
template <int N> inline FloatVector<N> expOf(FloatVector<N> x) {
  const auto t = larger(x * 1.4426950408889634f, splatTo<N>(-127));
  const auto shifted = t + ROUNDING;
  const auto r = t - (shifted - ROUNDING);
  auto p = splatTo<N>(1.5370705380938858e-4f);
  for (const float c :
       {1.3399848281486022e-3f, 9.618373249344893e-3f, 5.5503290351823074e-2f, 2.402264846229741e-1f, 6.931472055770829e-1f, 1.0f}) {
    p = fma(p, r, splatTo<N>(c));
  }
  // adding the integer to the exponent of 1 gives 2^n, and 0 for -127
  return p * reinterpret_cast<FloatVector<N>>((reinterpret_cast<IntVector<N>>(shifted) << 23) + 0x3f800000);
}

/** tanh, relative error below 3e-7: a polynomial near zero (tanhf of Cephes), exp beyond. */
template <int N> inline FloatVector<N> tanhOf(FloatVector<N> x) {
  const auto signs = reinterpret_cast<IntVector<N>>(x) & INT32_MIN;
  const auto magnitude = reinterpret_cast<FloatVector<N>>(reinterpret_cast<IntVector<N>>(x) & INT32_MAX);
  const auto z = x * x;
  auto p = splatTo<N>(-5.70498872745e-3f);
  for (const float c : {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f}) p = fma(p, z, splatTo<N>(c));
  const auto near = fma(p * z, x, x);
  const auto e = expOf<N>(-2 * magnitude);
  const auto far = (1 - e) / (1 + e);
  const auto signedFar = reinterpret_cast<IntVector<N>>(far) | signs;
  return magnitude < 0.625f ? near : reinterpret_cast<FloatVector<N>>(signedFar);
}

/** Applies a soft cap to `count` rows of logits. */
template <class P> inline void capRows(float* logits, int count, float cap) {
  for (int vector = 0; vector < count * P::VECTORS; vector++, logits += P::WIDTH) {
    storeFloats(logits, cap * tanhOf<P::WIDTH>(loadFloats<P::WIDTH>(logits) / cap));
  }
}

/** Hides a row from the lanes whose distance to `position` is not in `[low, high]`, and adds a bias for the others. */
template <class P> inline void maskRow(float* row, const int32_t* positions, int32_t position, int32_t low, int32_t high, float bias) {
  const auto hidden = splatTo<P::WIDTH>(-INFINITY);
  for (int v = 0; v < P::QUERIES; v += P::WIDTH) {
    const auto distance = loadInts<P::WIDTH>(positions + v) - position;
    storeFloats(row + v, (distance < low) | (distance > high) ? hidden : loadFloats<P::WIDTH>(row + v) + bias);
  }
}

/** Maxima of a column of vectors of logits and `top`; four at once, since a maximum takes several cycles. */
template <class P> inline typename P::Float columnMax(const float* column, int count, typename P::Float top) {
  typename P::Float tops[4] = {top, top, top, top};
  int row = 0;
  for (; row + 4 <= count; row += 4, column += 4 * P::QUERIES) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) tops[i] = larger(tops[i], loadFloats<P::WIDTH>(column + i * P::QUERIES));
  }
  for (; row < count; row++, column += P::QUERIES) tops[0] = larger(tops[0], loadFloats<P::WIDTH>(column));
  return larger(larger(tops[0], tops[1]), larger(tops[2], tops[3]));
}

/**
 * One step of the online softmax: logits of `count` rows become weights relative to the new maxima. `factors` get what rescales
 * previous sums and outputs. NaN is skipped by the maxima and makes the sums NaN.
 */
template <class P> inline void softmaxRows(float* logits, int count, float* maxima, float* sums, float* factors) {
  for (int v = 0; v < P::QUERIES; v += P::WIDTH) {
    const auto old = loadFloats<P::WIDTH>(maxima + v);
    const auto top = columnMax<P>(logits + v, count, old);
    // -Infinity less itself would be NaN
    const auto shift = top == -INFINITY ? typename P::Float{} : top;
    const auto factor = expOf<P::WIDTH>(old - shift);
    auto sum = loadFloats<P::WIDTH>(sums + v) * factor;
    float* column = logits + v;
    for (int row = 0; row < count; row++, column += P::QUERIES) {
      const auto weight = expOf<P::WIDTH>(loadFloats<P::WIDTH>(column) - shift);
      storeFloats(column, weight);
      sum += weight;
    }
    storeFloats(maxima + v, top);
    storeFloats(sums + v, sum);
    storeFloats(factors + v, factor);
  }
}
}  // namespace WINNOW_NAMESPACE
