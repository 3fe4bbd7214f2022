#include "scattered-rows.h"
#include "../gemm/int8-matmul.h"
#include "../gemm/quantize-activations.h"

namespace WINNOW_NAMESPACE {
namespace {
/** Columns that are dequantized together: whole blocks of every type. */
constexpr int COLUMNS = 256;

int columnsFrom(int begin, int numColumns) { return numColumns - begin < COLUMNS ? numColumns - begin : COLUMNS; }
}  // namespace

void copyTokens(const float* x, int32_t numTokens, int32_t numColumns, bool isRounded, float* to) {
  const size_t stride = paddedColumns(static_cast<size_t>(numColumns));
  for (int t = 0; t < numTokens; t++, x += numColumns, to += stride) {
    memcpy(to, x, static_cast<size_t>(numColumns) * sizeof(float));
    memset(to + numColumns, 0, (stride - static_cast<size_t>(numColumns)) * sizeof(float));
    if (!isRounded) continue;
    alignas(64) uint8_t scratch[activationBytes(1)];
    const Activations block(scratch, 1);
    for (int i = 0; i < numColumns; i += 32) {
      quantizeBlock(x + i, block, 0);
      const float d = floatAt(block.metas + META_SCALE);
      for (int j = 0; j < 32; j++) to[i + j] = d * static_cast<int8_t>(block.codes[j]);
    }
  }
}

void dotScattered(int32_t dtype, const ScatteredRows& rows, size_t offset, int32_t numColumns, const float* x, int32_t numTokens,
                  float* dots) {
  const size_t stride = paddedColumns(static_cast<size_t>(numColumns));
  alignas(64) float values[COLUMNS];
  for (int column = 0; column < numColumns; column += COLUMNS) {
    const int count = columnsFrom(column, numColumns);
    const size_t at = offset + bytesOf(dtype, static_cast<uint64_t>(column));
    const size_t end = offset + bytesOf(dtype, static_cast<uint64_t>(column + count));
    prefetchAhead(rows, at, end);
    for (int r = 0; r < ROWS_AT_ONCE; r++) {
      dequantize(dtype, rows.at[r] + at, count, values);
      for (int t = 0; t < numTokens; t++) {
        const float* tokens = x + static_cast<size_t>(t) * stride + column;
        dots[t * ROWS_AT_ONCE + r] += dotFloats(values, tokens, count);
      }
    }
  }
}

void addScattered(int32_t dtype, const ScatteredRows& rows, size_t offset, int32_t numRows, int32_t numColumns, const float* factors,
                  int32_t numTokens, float* sums, size_t stride) {
  alignas(64) float values[ROWS_AT_ONCE][COLUMNS];
  for (int column = 0; column < numColumns; column += COLUMNS) {
    const int count = columnsFrom(column, numColumns);
    const size_t at = offset + bytesOf(dtype, static_cast<uint64_t>(column));
    const size_t end = offset + bytesOf(dtype, static_cast<uint64_t>(column + count));
    prefetchAhead(rows, at, end);
    for (int r = 0; r < numRows; r++) dequantize(dtype, rows.at[r] + at, count, values[r]);
    for (int t = 0; t < numTokens; t++) {
      float* to = sums + static_cast<size_t>(t) * stride + column;
      for (int i = 0; i < count; i += LANES) {
        Floats sum = load(to + i);
        for (int r = 0; r < numRows; r++) sum = fma(load(values[r] + i), splatF(factors[t * ROWS_AT_ONCE + r]), sum);
        store(to + i, sum);
      }
    }
  }
}

void addSums(const float* sums, int32_t numParts, size_t partStride, int32_t numColumns, const float* from, float* y) {
  for (int i = 0; i < numColumns; i += LANES) {
    const int count = numColumns - i < LANES ? numColumns - i : LANES;
    Floats sum = from == nullptr ? splatF(0) : loadUpTo(from + i, count);
    for (int part = 0; part < numParts; part++) sum = add(sum, load(sums + static_cast<size_t>(part) * partStride + i));
    storeUpTo(y + i, sum, count);
  }
}
}  // namespace WINNOW_NAMESPACE
