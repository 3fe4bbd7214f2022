/**
 * sparse-matmul: y[t, j] = x[t] . weight[rows[j]] + bias[ids[j]] for active rows j, else 0; for up to three tokens. Work items: runs of
 * active rows, which are dequantized; 8-bit activations as the numbers that they stand for.
 */
#include "../ffn/scattered-rows.h"
#include "../gemm/int8-matmul.h"
#include "../generated/operands/sparse-matmul.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
using namespace operands::sparse_matmul;

/** Active rows of a work item. */
constexpr int ITEM_ROWS = 2 * ROWS_AT_ONCE;

bool supports(const Record& record) { return canDequantize(weight::dtype(record)); }
uint64_t localBytes(const Record& record) {
  return MAX_GATHER_TOKENS * paddedColumns(static_cast<size_t>(x::dim(record))) * sizeof(float) + 64;
}
bool takes(const Record& record) { return x::numTokens(record) <= MAX_GATHER_TOKENS; }

void multiplyRows(const Record& record, const ActiveRows& active, const float* tokens, int first, int end, int next) {
  float dots[MAX_GATHER_TOKENS * ROWS_AT_ONCE] = {};
  const int numTokens = x::numTokens(record);
  dotScattered(weight::dtype(record), active.from(first, next), 0, x::dim(record), tokens, numTokens, dots);
  const int32_t* ids = ids::isPresent(record) ? ids::address(record) : active.rows;
  for (int t = 0; t < numTokens; t++) {
    float* to = y::address(record) + static_cast<size_t>(t) * rows::maxActive(record);
    for (int r = 0; r < ROWS_AT_ONCE && first + r < end; r++) {
      to[first + r] = dots[t * ROWS_AT_ONCE + r] + (bias::isPresent(record) ? bias::address(record)[ids[first + r]] : 0);
    }
  }
}

void run(const Record& record, Threads& threads) {
  const int numActive = *count::address(record);
  const size_t rowBytes = bytesOf(weight::dtype(record), static_cast<uint64_t>(x::dim(record)));
  const ActiveRows active = {weight::address(record), rowBytes, rows::address(record), numActive};
  auto* tokens = reinterpret_cast<float*>(aligned(record.localScratch()));
  copyTokens(x::address(record), x::numTokens(record), x::dim(record), record.hasFlag(FLAG_INT8), tokens);
  int begin = threads.nextItems(ITEM_ROWS);
  while (begin < numActive) {
    // the next work item is taken before, so that its first rows can be prefetched
    const int next = threads.nextItems(ITEM_ROWS);
    const int end = begin + ITEM_ROWS < numActive ? begin + ITEM_ROWS : numActive;
    for (int first = begin; first < end; first += ROWS_AT_ONCE) {
      multiplyRows(record, active, tokens, first, end, first + ROWS_AT_ONCE < end ? first + ROWS_AT_ONCE : next);
    }
    begin = next;
  }
  // exactly one thread gets the first work item beyond the active rows
  if (begin != (numActive + ITEM_ROWS - 1) / ITEM_ROWS * ITEM_ROWS) return;
  const size_t maxActive = static_cast<size_t>(rows::maxActive(record));
  for (int t = 0; t < x::numTokens(record); t++) {
    memset(y::address(record) + t * maxActive + numActive, 0, (maxActive - static_cast<size_t>(numActive)) * sizeof(float));
  }
}
}  // namespace

extern const Kernel sparseMatmulKernel = {supports, noScratch, localBytes, run, takes};
}  // namespace WINNOW_NAMESPACE
