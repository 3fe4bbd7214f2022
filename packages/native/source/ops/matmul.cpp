/**
 * matmul: y = x W^T + bias, with 8-bit activations (gemm/int8-matmul.cpp) or, for weights that are dequantized, with those in f32. Work
 * items: runs of output rows.
 */
#include "../gemm/float-gemm.h"
#include "../gemm/int8-matmul.h"
#include "../generated/operands/matmul.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
using namespace operands::matmul;

/** Rows of a work item of a few tokens. */
constexpr int GEMV_ROWS = 64;

bool supports(const Record& record) {
  return record.hasFlag(FLAG_INT8) ? supportsInt8Matmul(record) : canDequantize(weight::dtype(record));
}

uint64_t sharedBytes(const Record& record) {
  if (record.hasFlag(FLAG_INT8)) return int8MatmulSharedBytes(record);
  return packedFloats(x::numTokens(record), x::numInputs(record)) * sizeof(float) + 64;
}

uint64_t localBytes(const Record& record) {
  return record.hasFlag(FLAG_INT8) ? int8MatmulLocalBytes(record) : sizeof(FloatGemmScratch) + 64;
}

void multiplyMany(const Record& record, Threads& threads, FloatGemm product) {
  auto* packed = reinterpret_cast<float*>(aligned(record.sharedScratch()));
  const int numTiles = (product.numTokens + FLOAT_TILE_TOKENS - 1) / FLOAT_TILE_TOKENS;
  for (int tile = threads.nextItems(1); tile < numTiles; tile = threads.nextItems(1)) {
    packTile(x::address(record), product.numTokens, product.numInputs, tile, packed);
  }
  if (!threads.barrier()) return;
  product.packed = packed;
  auto& scratch = *reinterpret_cast<FloatGemmScratch*>(aligned(record.localScratch()));
  for (int begin = threads.nextItems(FLOAT_MC); begin < product.numOutputs; begin = threads.nextItems(FLOAT_MC)) {
    floatGemmPanel(product, begin, begin + FLOAT_MC < product.numOutputs ? begin + FLOAT_MC : product.numOutputs, scratch);
  }
}

void multiplyFew(const Record& record, Threads& threads, const FloatGemm& product) {
  for (int begin = threads.nextItems(GEMV_ROWS); begin < product.numOutputs; begin = threads.nextItems(GEMV_ROWS)) {
    for (int row = begin; row < begin + GEMV_ROWS && row < product.numOutputs; row++) {
      float sums[MAX_INVARIANT_TOKENS];
      const uint8_t* at = product.weight + static_cast<size_t>(row) * product.rowBytes;
      floatGemv(product.dtype, at, x::address(record), product.numInputs, product.numTokens, sums);
      for (int t = 0; t < product.numTokens; t++) {
        product.y[static_cast<size_t>(t) * product.numOutputs + row] = sums[t] + (product.bias == nullptr ? 0 : product.bias[row]);
      }
    }
  }
}

void run(const Record& record, Threads& threads) {
  // the last matmul of a step without requested logits has no tokens
  if (x::numTokens(record) == 0) return;
  if (record.hasFlag(FLAG_INT8)) return int8Matmul(record, threads);
  const int32_t numInputs = weight::numInputs(record), numTokens = x::numTokens(record), dtype = weight::dtype(record);
  const FloatGemm product = {dtype,
                             weight::address(record),
                             bytesOf(dtype, static_cast<uint64_t>(numInputs)),
                             numInputs,
                             nullptr,
                             numTokens,
                             y::address(record),
                             weight::numOutputs(record),
                             bias::isPresent(record) ? bias::address(record) : nullptr};
  if (numTokens >= MIN_PANEL_TOKENS && !record.isInvariant(numTokens)) multiplyMany(record, threads, product);
  else multiplyFew(record, threads, product);
}
}  // namespace

extern const Kernel matmulKernel = {supports, sharedBytes, localBytes, run};
}  // namespace WINNOW_NAMESPACE
