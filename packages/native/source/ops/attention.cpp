/** Scaled dot-product attention over the paged cache. Threads split long contexts of few tokens (split-KV) and merge partial states. */
#include <math.h>
#include "../attention/flash-attention.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
namespace op = operands::attention;

/** Maximum number of splits of a token; steps of many tokens need none. */
int32_t countSplits(const KvCache& cache) {
  int32_t splits = 1;
  for (int32_t t = 0; t < cache.numTokens && cache.numTokens <= MAX_INVARIANT_TOKENS; t++) {
    if (const int32_t own = cache.cutContext(t).splits; own > splits) splits = own;
  }
  return splits;
}

/** Merges the partial states of a row and writes its normalized output. */
void mergeRow(const KvCache& cache, const FlashOutput& states, int32_t numSplits, size_t row, float* y) {
  const size_t rows = static_cast<size_t>(cache.numTokens) * cache.numHeads;
  const int32_t valueDim = cache.valueDim;
  float top = -INFINITY;
  for (int32_t split = 0; split < numSplits; split++) top = fmaxf(top, states.maxima[split * rows + row]);
  float sum = 0;
  for (int32_t i = 0; i < valueDim; i++) y[i] = 0;
  for (int32_t split = 0; split < numSplits; split++) {
    const size_t at = split * rows + row;
    if (states.maxima[at] == -INFINITY) continue;
    const float factor = static_cast<float>(exp(static_cast<double>(states.maxima[at]) - top));
    sum += states.sums[at] * factor;
    for (int32_t i = 0; i < valueDim; i++) y[i] += states.values[at * valueDim + i] * factor;
  }
  const float inverse = sum == 0 ? 0 : 1 / sum;
  for (int32_t i = 0; i < valueDim; i++) y[i] *= inverse;
}

void run(const Record& record, Threads& threads) {
  KvCache cache(record);
  cache.sinks = op::sinkLogits::isPresent(record) ? op::sinkLogits::address(record) : nullptr;
  float* y = op::y::address(record);
  const int32_t numSplits = countSplits(cache);
  if (numSplits == 1) return flashAttention(cache, {nullptr, nullptr, y}, 1, true, record.localScratch(), threads);
  const int32_t rows = cache.numTokens * cache.numHeads;
  float* maxima = reinterpret_cast<float*>(record.sharedScratch());
  const FlashOutput states = {maxima, maxima + numSplits * rows, maxima + 2 * numSplits * rows};
  flashAttention(cache, states, numSplits, true, record.localScratch(), threads);
  if (!threads.barrier()) return;
  for (int32_t row = threads.nextItems(1); row < rows; row = threads.nextItems(1)) {
    mergeRow(cache, states, cache.cutContext(row / cache.numHeads).splits, row, y + static_cast<size_t>(row) * cache.valueDim);
  }
}

bool supports(const Record& record) { return hasRowTypes(record) && !op::positionBias::isPresent(record); }
/** Partial states of the splits of a long context. */
uint64_t sharedBytes(const Record& record) {
  const uint64_t rows = static_cast<uint64_t>(least(op::q::numTokens(record), MAX_INVARIANT_TOKENS)) * op::q::numHeads(record);
  return MAX_SPLITS * rows * (op::values::valueDim(record) + 2) * 4;
}
}  // namespace

extern const Kernel attentionKernel = {supports, sharedBytes, tileScratchBytes, run};
}  // namespace WINNOW_NAMESPACE
