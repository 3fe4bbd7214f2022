/**
 * Rows that a list picks, scattered over memory. Several are read together, since memory serves many streams faster than one, and
 * lines of the next ones are prefetched meanwhile; into the L2 cache, because the L1 cache keeps fewer misses in flight.
 */
#pragma once
#include "../gemm/dequantize.h"
#include "../runtime/generated/layout.h"

namespace WINNOW_NAMESPACE {
/** Rows that are read together. */
constexpr int ROWS_AT_ONCE = 8;

struct ScatteredRows {
  const uint8_t* at[ROWS_AT_ONCE];
  /** Rows that are needed next. */
  const uint8_t* ahead[ROWS_AT_ONCE];
};

/** The active rows of a matrix. */
struct ActiveRows {
  const uint8_t* weight;
  size_t rowBytes;
  const int32_t* rows;
  int32_t numActive;

  /** Active rows from `first` and from `next` on; the last one stands in for those beyond it. */
  ScatteredRows from(int first, int next) const {
    const auto addressOf = [&](int active) {
      return weight + static_cast<size_t>(rows[active < numActive ? active : numActive - 1]) * rowBytes;
    };
    ScatteredRows result;
    for (int r = 0; r < ROWS_AT_ONCE; r++) {
      result.at[r] = addressOf(first + r);
      result.ahead[r] = addressOf(next + r);
    }
    return result;
  }
};

/** Prefetches the lines that begin in bytes `[begin, end)` of the next rows, counted from their addresses. */
inline void prefetchAhead(const ScatteredRows& rows, size_t begin, size_t end) {
  for (size_t at = (begin + 63) & ~size_t{63}; at < end; at += 64) {
#pragma GCC unroll 8
    for (const uint8_t* row : rows.ahead) __builtin_prefetch(row + at, 0, 2);
  }
}

/** Maximum number of tokens of gather kernels; batches run in WebAssembly. */
constexpr int MAX_GATHER_TOKENS = MIN_PANEL_TOKENS - 1;

/** Floats of a token in scratch: whole vectors, with zeros after the last column. */
constexpr size_t paddedColumns(size_t numColumns) { return (numColumns + 31) & ~size_t{31}; }

/** Copies activations `[numTokens][numColumns]` into scratch, with `isRounded` as the numbers that their 8-bit codes stand for. */
void copyTokens(const float* x, int32_t numTokens, int32_t numColumns, bool isRounded, float* to);

/**
 * Adds the dot products of rows in the layout of files, from byte `offset` on, with every token of `x` as `copyTokens` stores them
 * to `dots[numTokens][ROWS_AT_ONCE]`.
 */
void dotScattered(int32_t dtype, const ScatteredRows& rows, size_t offset, int32_t numColumns, const float* x, int32_t numTokens,
                  float* dots);

/** Adds the first `numRows` rows times their factors `[numTokens][ROWS_AT_ONCE]` to sums, which are `stride` floats apart. */
void addScattered(int32_t dtype, const ScatteredRows& rows, size_t offset, int32_t numRows, int32_t numColumns, const float* factors,
                  int32_t numTokens, float* sums, size_t stride);

/** y = from, or zeros where it is null, plus `numParts` sums in order, `partStride` floats apart. */
void addSums(const float* sums, int32_t numParts, size_t partStride, int32_t numColumns, const float* from, float* y);
}  // namespace WINNOW_NAMESPACE
