#include "float-gemm.h"

namespace WINNOW_NAMESPACE {

namespace {

constexpr int TILE = FLOAT_TILE_TOKENS;

/** LANES weights from column `i` on, and one. */
template <int32_t DTYPE> inline Floats weightsAt(const uint8_t* row, int i) {
  if constexpr (DTYPE == F32) return load(reinterpret_cast<const float*>(row) + i);
  if constexpr (DTYPE == F16) return loadHalves(row + 2 * static_cast<size_t>(i));
  return loadBrainFloats(row + 2 * static_cast<size_t>(i));
}
template <int32_t DTYPE> inline float weightAt(const uint8_t* row, int i) {
  if constexpr (DTYPE == F32) return reinterpret_cast<const float*>(row)[i];
  const uint8_t* at = row + 2 * static_cast<size_t>(i);
  if constexpr (DTYPE == F16) return halfToFloat(at);
  const uint8_t wide[4] = {0, 0, at[0], at[1]};
  float value;
  memcpy(&value, wide, 4);
  return value;
}

/** Converts columns `[begin, begin + count)` of a row, followed by zeros up to a multiple of four. */
template <int32_t DTYPE> void convert(const uint8_t* row, int begin, int count, float* to) {
  int i = 0;
  for (; i + LANES <= count; i += LANES) store(to + i, weightsAt<DTYPE>(row, begin + i));
  for (; i < count; i++) to[i] = weightAt<DTYPE>(row, begin + i);
  for (; i % 4 != 0; i++) to[i] = 0;
}

/** Fills the panel with `count` columns of the rows of `[begin, end)`; the last row stands in for those beyond it. */
template <int32_t DTYPE>
void packPanel(const FloatGemm& product, int begin, int end, int column, int count, FloatGemmScratch& scratch) {
  for (int o = 0; o < FLOAT_MC; o += 4) {
    for (int i = 0; i < 4; i++) {
      const int row = begin + o + i < end ? begin + o + i : end - 1;
      convert<DTYPE>(product.weight + static_cast<size_t>(row) * product.rowBytes, column, count, scratch.rows[i]);
    }
    for (int k = 0; k < count; k += 4) {
      storeColumns(scratch.rows[0] + k, scratch.rows[1] + k, scratch.rows[2] + k, scratch.rows[3] + k,
                   &scratch.panel[k][0][0] + o, FLOAT_MC);
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

/** Stores the sums of tokens `[first, last)` plus the bias. */
void storeSums(const FloatGemm& product, int begin, int end, int first, int last, const FloatGemmScratch& scratch) {
  for (int v = 0; v < FLOAT_VECTORS; v++) {
    const int row = begin + v * LANES;
    const int count = end - row < LANES ? end - row : LANES;
    if (count <= 0) return;
    const Floats bias = product.bias == nullptr ? splatF(0) : loadUpTo(product.bias + row, count);
    for (int t = first; t < last; t++) {
      float* to = product.y + static_cast<size_t>(t) * product.numOutputs + row;
      storeUpTo(to, add(load(scratch.sums[t - first][v]), bias), count);
    }
  }
}

template <int32_t DTYPE> void multiplyPanel(const FloatGemm& product, int begin, int end, FloatGemmScratch& scratch) {
  for (int first = 0; first < product.numTokens; first += FLOAT_NC) {
    const int last = first + FLOAT_NC < product.numTokens ? first + FLOAT_NC : product.numTokens;
    memset(scratch.sums, 0, sizeof scratch.sums);
    for (int k = 0; k < product.numInputs; k += FLOAT_KC) {
      const int count = product.numInputs - k < FLOAT_KC ? product.numInputs - k : FLOAT_KC;
      packPanel<DTYPE>(product, begin, end, k, count, scratch);
      for (int t = first; t < last; t += TILE) {
        const float* x = product.packed + static_cast<size_t>(t) * product.numInputs + static_cast<size_t>(k) * TILE;
        multiplyTile(scratch, x, count, scratch.sums + (t - first));
      }
    }
    storeSums(product, begin, end, first, last, scratch);
  }
}

/** Four sums per token hide the latency of additions. */
template <int32_t DTYPE, int TOKENS> void dotRow(const uint8_t* row, const float* x, int numColumns, float* to) {
  Floats sums[TOKENS][4];
  for (auto& four : sums) {
    for (Floats& sum : four) sum = splatF(0);
  }
  int i = 0;
  for (; i + 4 * LANES <= numColumns; i += 4 * LANES) {
#pragma GCC unroll 4
    for (int part = 0; part < 4; part++) {
      const Floats weights = weightsAt<DTYPE>(row, i + part * LANES);
#pragma GCC unroll 4
      for (int t = 0; t < TOKENS; t++) {
        const float* values = x + static_cast<size_t>(t) * numColumns + i + part * LANES;
        sums[t][part] = fma(weights, load(values), sums[t][part]);
      }
    }
  }
  for (int t = 0; t < TOKENS; t++) {
    float parts[4];
    storePartSum(parts, add(add(sums[t][0], sums[t][1]), add(sums[t][2], sums[t][3])));
    to[t] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    for (int j = i; j < numColumns; j++) to[t] += weightAt<DTYPE>(row, j) * x[static_cast<size_t>(t) * numColumns + j];
  }
}

template <int32_t DTYPE> void dotRows(const uint8_t* row, const float* x, int numColumns, int numTokens, float* sums) {
  if (numTokens == 1) dotRow<DTYPE, 1>(row, x, numColumns, sums);
  else if (numTokens == 2) dotRow<DTYPE, 2>(row, x, numColumns, sums);
  else dotRow<DTYPE, 3>(row, x, numColumns, sums);
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
  if (product.dtype == F32) multiplyPanel<F32>(product, begin, end, scratch);
  else if (product.dtype == F16) multiplyPanel<F16>(product, begin, end, scratch);
  else multiplyPanel<BF16>(product, begin, end, scratch);
}

void floatGemv(int32_t dtype, const uint8_t* row, const float* x, int32_t numColumns, int32_t numTokens, float* sums) {
  if (dtype == F32) dotRows<F32>(row, x, numColumns, numTokens, sums);
  else if (dtype == F16) dotRows<F16>(row, x, numColumns, numTokens, sums);
  else dotRows<BF16>(row, x, numColumns, numTokens, sums);
}

}  // namespace WINNOW_NAMESPACE
