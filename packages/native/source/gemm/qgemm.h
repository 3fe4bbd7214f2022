/**
 * qgemm: y = W x for many tokens, with W in groups of four interleaved rows and 8-bit activations `[block][token]`. Panels of MC
 * rows and KC columns are unpacked once for NC tokens; per block of 32 columns, integer sums are exact and then scaled and added to
 * f32 sums, which stay in the L1 cache.
 */
#pragma once
#include "unpacked-blocks.h"

namespace WINNOW_NAMESPACE {
/** Rows per panel. */
constexpr int MC = 32;
/** Blocks per panel: 512 columns, two super-blocks. */
constexpr int KC_BLOCKS = 16;
/** Maximum number of tokens per pass over a panel. */
constexpr int NC = 128;
constexpr int PANEL_VECTORS = MC / LANES;
/**
 * Tokens from the sums of one vector of rows to those of the next. NC tokens are a multiple of 4 KiB: loads then wait for stores to
 * the other sums, and K-quants took up to 1.6 times as long, depending on where the process was loaded.
 */
constexpr int SUMS_STRIDE = NC + 32;

/** The operands of a product. */
struct Qgemm {
  /** Groups of four rows, each `groupBytes` long. */
  const uint8_t* weight;
  size_t groupBytes;
  int32_t numBlocks;
  /** `[block][paddedTokens]` */
  Activations activations;
  int32_t paddedTokens;
  int32_t numTokens;
  /** `[numTokens][numOutputs]`, with `rows` the rows of the tokens in another order. */
  float* y;
  int32_t numOutputs;
  /** `[numOutputs]` or null. */
  const float* bias;
  /** The row of y of each token, or null if token t has row t. */
  const int32_t* rows = nullptr;
};

/** What a thread keeps in its scratch, aligned to 64 bytes. */
struct QgemmScratch {
  UnpackedBlock panel[PANEL_VECTORS][KC_BLOCKS];
  /** Sums of LANES rows, per token. */
  float sums[PANEL_VECTORS][SUMS_STRIDE][LANES];
};

/** Minimum number of tokens for tiles of AMX. */
constexpr int MIN_TILE_TOKENS = 16;

/** Bytes of a panel of MC rows in bfloat16. */
constexpr size_t tilePanelBytes(size_t numBlocks) { return MC * numBlocks * 64; }

/** Rounds a token to bfloat16. */
void roundToken(const float* x, int32_t numBlocks, uint16_t* to);

/**
 * The same as `qgemmPanel` by tiles of AMX, with weights and activations in bfloat16: `codes` are `[tokens][inputs]` of these, with
 * room for whole tiles of tokens. Only on the level avx512. @param panel of `tilePanelBytes`, aligned to 64 bytes
 */
void qgemmTiles(int32_t dtype, const Qgemm& product, int32_t begin, int32_t end, QgemmScratch& scratch, uint8_t* panel);

/** Computes outputs `[begin, end)`, whole groups and at most MC, of all tokens; `dtype` is a type that can be repacked. */
void qgemmPanel(int32_t dtype, const Qgemm& product, int32_t begin, int32_t end, QgemmScratch& scratch);
}  // namespace WINNOW_NAMESPACE
