/** matmul with repacked weights and 8-bit activations: y = x W^T + bias. */
#pragma once
#include <stddef.h>
#include "../generated/dtypes.h"
#include "../runtime/kernel.h"
#include "quantize-activations.h"

namespace WINNOW_NAMESPACE {
bool supportsInt8Matmul(const Record& record);
uint64_t int8MatmulSharedBytes(const Record& record);
uint64_t int8MatmulLocalBytes(const Record& record);
void int8Matmul(const Record& record, Threads& threads);

/** Quantizes consecutive blocks. Work items: runs of eight. */
void quantizeAll(const float* x, const Activations& to, int32_t numBlocks, Threads& threads);

/** Whether rows of this type are interleaved at load. */
constexpr bool canRepack(int32_t dtype) { return dtype == Q8_0 || dtype == Q4_0 || dtype == Q4_K || dtype == Q5_K || dtype == Q6_K; }

/** Bytes of the quantized activations of `numBlocks` blocks. */
constexpr size_t activationBytes(size_t numBlocks) { return numBlocks * 128 + 64; }

/** Sizes and addresses rounded up to whole cache lines. */
inline size_t aligned(size_t sizeBytes) { return (sizeBytes + 63) & ~size_t{63}; }
inline uint8_t* aligned(uint8_t* at) { return reinterpret_cast<uint8_t*>(aligned(reinterpret_cast<size_t>(at))); }
}  // namespace WINNOW_NAMESPACE
