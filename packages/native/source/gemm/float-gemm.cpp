#include "float-gemm.h"

namespace WINNOW_NAMESPACE {
namespace {
constexpr int TILE = FLOAT_TILE_TOKENS;

/** Fills the panel with `count` columns of the rows of `[begin, end)`; the last row stands in for those beyond it. */
void packPanel(const FloatGemm& product, int begin, int end, int column, int count, FloatGemmScratch& scratch) {
  for (int o = 0; o < FLOAT_MC; o += 4) {
    for (int i = 0; i < 4; i++) {
      const int row = begin + o + i < end ? begin + o + i : end - 1;
      const size_t at = static_cast<size_t>(row) * product.rowBytes + bytesOf(product.dtype, static_cast<uint64_t>(column));
      dequantize(product.dtype, product.weight + at, count, scratch.rows[i]);
    }
    for (int k = 0; k < count; k += 4) {
      storeColumns(scratch.rows[0] + k, scratch.rows[1] + k, scratch.rows[2] + k, scratch.rows[3] + k, &scratch.panel[k][0][0] + o,
                   FLOAT_MC);
    }
  }
}

/** Adds the products of a panel with a tile of tokens to its sums. */
void multiplyTile(const FloatGemmScratch& scratch, const float* x, int count, float (*sums)[FLOAT_VECTORS][LANES]) {
  Floats tile[TILE][FLOAT_VECTORS];
#pragma GCC unroll 16
  for (int t = 0; t < TILE; t++) {
#pragma GCC unroll 2
    for (int v = 0; v < FLOAT_VECTORS; v++) tile[t][v] = load(sums[t][v]);
  }
  for (int k = 0; k < count; k++, x += TILE) {
    const Floats first = load(scratch.panel[k][0]);
    const Floats second = load(scratch.panel[k][1]);
#pragma GCC unroll 16
    for (int t = 0; t < TILE; t++) {
      const Floats value = splatF(x[t]);
      tile[t][0] = fma(first, value, tile[t][0]);
      tile[t][1] = fma(second, value, tile[t][1]);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < TILE; t++) {
#pragma GCC unroll 2
    for (int v = 0; v < FLOAT_VECTORS; v++) store(sums[t][v], tile[t][v]);
  }
}
}  // namespace

void packTile(const float* x, int32_t numTokens, int32_t numInputs, int32_t tile, float* packed) {
  float* to = packed + static_cast<size_t>(tile) * TILE * numInputs;
  for (int t = 0; t < TILE; t++) {
    const int token = tile * TILE + t;
    const float* from = x + static_cast<size_t>(token) * numInputs;
    for (int k = 0; k < numInputs; k++) to[static_cast<size_t>(k) * TILE + t] = token < numTokens ? from[k] : 0;
  }
}

void floatGemmPanel(const FloatGemm& product, int32_t begin, int32_t end, FloatGemmScratch& scratch) {
  for (int first = 0; first < product.numTokens; first += FLOAT_NC) {
    const int last = first + FLOAT_NC < product.numTokens ? first + FLOAT_NC : product.numTokens;
    memset(scratch.sums, 0, sizeof scratch.sums);
    for (int k = 0; k < product.numInputs; k += FLOAT_KC) {
      const int count = product.numInputs - k < FLOAT_KC ? product.numInputs - k : FLOAT_KC;
      packPanel(product, begin, end, k, count, scratch);
      for (int t = first; t < last; t += TILE) {
        const float* x = product.packed + static_cast<size_t>(t) * product.numInputs + static_cast<size_t>(k) * TILE;
        multiplyTile(scratch, x, count, scratch.sums + (t - first));
      }
    }
    for (int t = first; t < last; t++) {
      float* y = product.y + static_cast<size_t>(t) * product.numOutputs;
      storeSums(y, product.bias, begin, end, [&](int v) { return load(scratch.sums[t - first][v]); });
    }
  }
}

void floatGemv(int32_t dtype, const uint8_t* row, const float* x, int32_t numColumns, int32_t numTokens, float* sums) {
  alignas(64) float values[FLOAT_KC];
  for (int t = 0; t < numTokens; t++) sums[t] = 0;
  for (int k = 0; k < numColumns; k += FLOAT_KC) {
    const int count = numColumns - k < FLOAT_KC ? numColumns - k : FLOAT_KC;
    const uint8_t* at = row + bytesOf(dtype, static_cast<uint64_t>(k));
    prefetchStream(at, bytesOf(dtype, static_cast<uint64_t>(count)));
    dequantize(dtype, at, count, values);
    for (int t = 0; t < numTokens; t++) sums[t] += dotFloats(values, x + static_cast<size_t>(t) * numColumns + k, count);
  }
}
}  // namespace WINNOW_NAMESPACE
