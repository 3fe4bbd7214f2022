/**
 * Rows of repacked neurons (see repack-neurons.ts of the interpreter): gate and up rows times 8-bit activations, and weighted sums of down
 * rows. Four blocks of 32 columns are [4 scales][vectors of 16 bytes with the next four codes of each block; for down rows, the codes of
 * one block after the other] so that activations in the same order need no shuffles, and a part of a vector has one sum for each block.
 */
#pragma once
#include "../gemm/unpacked-blocks.h"
#include "scattered-rows.h"

namespace WINNOW_NAMESPACE {
// four blocks of activations: codes as `dotRepeated` takes them, then scales [4] and initial sums [4]
constexpr size_t FOUR_SCALES = 4 * CODE_BYTES<8>;
constexpr size_t FOUR_STARTS = FOUR_SCALES + 16;
constexpr size_t FOUR_BYTES = FOUR_SCALES + 64;

/** Quantizes whole fours of blocks of x. */
void quantizeFours(int32_t dtype, const float* x, int32_t numFours, uint8_t* to);

/** The dot products of rows that begin `offset` bytes after those addresses, gate or up, with activations. */
void dotRepacked(int32_t dtype, const ScatteredRows& rows, size_t offset, const uint8_t* x, int32_t numFours, float* dots);

/** Adds down rows, at the same place, times their factors to sums. */
void addRepacked(int32_t dtype, const ScatteredRows& rows, size_t offset, const float* factors, int32_t numFours, float* sums);
}  // namespace WINNOW_NAMESPACE
