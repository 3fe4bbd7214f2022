/**
 * sparse-combine: y[t] = previous[t] + sum_j h[t, j] weight[rows[j]] over active rows j, for up to three tokens. Work items: runs of
 * columns. Rows are dequantized; NEURON_GROUP of them are summed before they are added to y, so that sums which are continued after
 * whole groups have the bits of one pass.
 */
#include "../ffn/scattered-rows.h"
#include "../gemm/int8-matmul.h"
#include "../generated/operands/sparse-combine.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
using namespace operands::sparse_combine;

/** Columns of a work item are a multiple of this: whole blocks of every type. */
constexpr int COLUMNS = 256;

bool supports(const Record& record) { return canDequantize(weight::dtype(record)); }
uint64_t localBytes(const Record& record) {
  return MAX_GATHER_TOKENS * static_cast<uint64_t>(weight::dim(record) + COLUMNS) * sizeof(float) + 64;
}
bool takes(const Record& record) { return h::numTokens(record) <= MAX_GATHER_TOKENS; }

/** Adds active rows `[first, end)`, columns `[begin, begin + columns)`, to sums, which are `stride` floats apart. */
void addGroup(const Record& record, const ActiveRows& active, int first, int end, int begin, int columns, float* sums, size_t stride) {
  const int32_t dtype = weight::dtype(record);
  for (; first < end; first += ROWS_AT_ONCE) {
    float factors[MAX_GATHER_TOKENS * ROWS_AT_ONCE];
    const int numRows = end - first < ROWS_AT_ONCE ? end - first : ROWS_AT_ONCE;
    for (int t = 0; t < h::numTokens(record); t++) {
      const float* from = h::address(record) + static_cast<size_t>(t) * h::maxActive(record) + first;
      memcpy(factors + t * ROWS_AT_ONCE, from, static_cast<size_t>(numRows) * sizeof(float));
    }
    addScattered(dtype, active.from(first, first + ROWS_AT_ONCE), bytesOf(dtype, static_cast<uint64_t>(begin)), numRows, columns, factors,
                 h::numTokens(record), sums, stride);
  }
}

void run(const Record& record, Threads& threads) {
  const int width = weight::dim(record);
  const int numTokens = h::numTokens(record);
  const size_t rowBytes = bytesOf(weight::dtype(record), static_cast<uint64_t>(width));
  const ActiveRows active = {weight::address(record), rowBytes, rows::address(record), *count::address(record)};
  auto* sums = reinterpret_cast<float*>(aligned(record.localScratch()));
  const int item = (width / threads.numThreads() + COLUMNS) / COLUMNS * COLUMNS;
  for (int begin = threads.nextItems(item); begin < width; begin = threads.nextItems(item)) {
    const int columns = begin + item < width ? item : width - begin;
    const float* from = previous::isPresent(record) ? previous::address(record) : nullptr;
    for (int first = 0; first == 0 || first < active.numActive; first += NEURON_GROUP) {
      memset(sums, 0, static_cast<size_t>(numTokens * item) * sizeof(float));
      const int end = first + NEURON_GROUP < active.numActive ? first + NEURON_GROUP : active.numActive;
      addGroup(record, active, first, end, begin, columns, sums, static_cast<size_t>(item));
      for (int t = 0; t < numTokens; t++) {
        const size_t at = static_cast<size_t>(t) * width + begin;
        addSums(sums + t * item, 1, 0, columns, from == nullptr ? nullptr : from + at, y::address(record) + at);
      }
      from = y::address(record);
    }
  }
}
}  // namespace

extern const Kernel sparseCombineKernel = {supports, noScratch, localBytes, run, takes};
}  // namespace WINNOW_NAMESPACE
