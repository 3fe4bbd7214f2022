/**
 * qgemv: y = W x for a few tokens, with W in groups of four interleaved rows, which are streamed once: a vector has PARTS times
 * four columns of four rows. Activations are repeated accordingly, so that a part has the same four of them for each row. The
 * weights are one ascending stream.
 */
#pragma once
#include "unpacked-blocks.h"

namespace WINNOW_NAMESPACE {
/** Maximum number of tokens of one pass over the weights. */
constexpr int MAX_GEMV_TOKENS = 3;

/** The activations of one token. */
struct RepeatedToken {
  /** Codes of every four columns, four times. */
  uint8_t* codes;
  /** For each block, its META_SUM four times. */
  float* sums;
  /** Metas of consecutive blocks. */
  const uint8_t* metas;
};

/** Bytes of the repeated activations of a token, for weights of any type. */
constexpr size_t repeatedBytes(size_t numBlocks) { return numBlocks * (4 * CODE_BYTES<8> + 16); }

/** Repeats the activations of a token, blocks `[first, first + numBlocks)` of `from`, in a scratch aligned to 64 bytes. */
RepeatedToken repeatToken(int32_t dtype, const Activations& from, size_t first, size_t numBlocks, uint8_t* scratch);

/** Multiplies one group by tokens and stores four sums for each of them. */
void qgemvGroup(int32_t dtype, const uint8_t* group, int32_t numBlocks, const RepeatedToken* tokens, int32_t numTokens, float* sums);
}  // namespace WINNOW_NAMESPACE
