/**
 * y = W x for weights of any type that can be dequantized, in the layout of files. A few tokens: dot products of a row, whose weights
 * are one ascending stream. More: panels of FLOAT_MC rows and FLOAT_KC columns are dequantized and transposed once for FLOAT_NC tokens,
 * which are packed TILE side by side; a register tile has two vectors of rows and TILE tokens.
 */
#pragma once
#include "dequantize.h"

namespace WINNOW_NAMESPACE {
/** Vectors of rows of a register tile, and rows per panel. */
constexpr int FLOAT_VECTORS = 2;
constexpr int FLOAT_MC = FLOAT_VECTORS * LANES;
/** Columns per panel: whole blocks of every type. */
constexpr int FLOAT_KC = 256;
/** Maximum number of tokens per pass over a panel: whole tiles. */
constexpr int FLOAT_NC = 16 * FLOAT_TILE_TOKENS;

/** The operands of a product. */
struct FloatGemm {
  int32_t dtype;
  const uint8_t* weight;
  size_t rowBytes;
  int32_t numInputs;
  /** `[tile][numInputs][FLOAT_TILE_TOKENS]`, see `packTile`. */
  const float* packed;
  int32_t numTokens;
  /** `[numTokens][numOutputs]` */
  float* y;
  int32_t numOutputs;
  /** `[numOutputs]` or null. */
  const float* bias;
};

/** What a thread keeps in its scratch, aligned to 64 bytes. */
struct FloatGemmScratch {
  float panel[FLOAT_KC][FLOAT_VECTORS][LANES];
  float sums[FLOAT_NC][FLOAT_VECTORS][LANES];
  float rows[4][FLOAT_KC];
};

/** Number of floats that the packed tokens take. */
constexpr size_t packedFloats(size_t numTokens, size_t numInputs) {
  return (numTokens + FLOAT_TILE_TOKENS - 1) / FLOAT_TILE_TOKENS * FLOAT_TILE_TOKENS * numInputs;
}

/** Packs the tokens of a tile of `x[numTokens][numInputs]`; zeros stand in for tokens beyond the last. */
void packTile(const float* x, int32_t numTokens, int32_t numInputs, int32_t tile, float* packed);

/** Computes outputs `[begin, end)`, at most FLOAT_MC, of all tokens. */
void floatGemmPanel(const FloatGemm& product, int32_t begin, int32_t end, FloatGemmScratch& scratch);

/** Multiplies a row by a few tokens, `numColumns` floats apart. */
void floatGemv(int32_t dtype, const uint8_t* row, const float* x, int32_t numColumns, int32_t numTokens, float* sums);
}  // namespace WINNOW_NAMESPACE
