/**
 * Activations as 8-bit integers with one scale per block of 32: `x = d * code`, `d = max |x| / 127`; the same codes and metas as
 * those of the interpreter (quantize-activations.ts). On the level avx2, codes have a second form for
 * weights of eight bits: magnitudes [32] and signs [32].
 */
#pragma once
#include "../runtime/generated/layout.h"
#include "../simd/simd.h"

namespace WINNOW_NAMESPACE {
inline float floatAt(const uint8_t* meta) { return loadAs<float>(meta); }
inline int32_t intAt(const uint8_t* meta) { return loadAs<int32_t>(meta); }

/** Where the parts of quantized activations are in a scratch. */
struct Activations {
  uint8_t* codes;
  /** Codes in the second form, 64 bytes per block; only on levels that have one. */
  uint8_t* side;
  uint8_t* metas;

  /** The parts for `numBlocks` blocks from `base` on, aligned to 64 bytes; they take 128 bytes per block, plus 64. */
  Activations(uint8_t* base, size_t numBlocks)
      : codes(base), side(base + ((numBlocks * 32 + 63) & ~size_t{63})), metas(side + numBlocks * 64) {}

  /** Codes in the form for weights of BITS bits. */
  template <int BITS> const uint8_t* codesFor() const { return CODE_BYTES<BITS> == 32 ? codes : side; }
};

/** Quantizes 32 values as block `at`. */
void quantizeBlock(const float* x, const Activations& to, size_t at);

/** Quantizes `numBlocks` consecutive blocks, the first as block `at`, the others `stride` blocks apart. */
void quantizeBlocks(const float* x, const Activations& to, size_t at, size_t numBlocks, size_t stride);

/** Copies block `from` of other activations to block `at`. */
void copyBlock(const Activations& other, size_t from, const Activations& to, size_t at);

/** Zeros blocks in the same places. */
void clearBlocks(const Activations& to, size_t at, size_t numBlocks, size_t stride);
}  // namespace WINNOW_NAMESPACE
