#include "exact-attention.h"
#include <math.h>

namespace WINNOW_NAMESPACE {

namespace {

double logitOf(const KvCache& cache, const float* query, const float* key) {
  double sum = 0;
  for (int32_t i = 0; i < cache.headDim; i++) sum += static_cast<double>(query[i]) * key[i];
  const double logit = sum * cache.scale;
  return cache.softCap == 0 ? logit : cache.softCap * tanh(logit / cache.softCap);
}

}  // namespace

void attendExactly(const KvCache& cache, const ExactQuery& query, int32_t begin, int32_t end, const ExactState& to, const ExactScratch& scratch) {
  double* sums = scratch.sums;
  double top = -INFINITY;
  double denominator = 0;
  for (int32_t i = 0; i < cache.valueDim; i++) sums[i] = 0;
  for (int32_t slot = begin; slot < end; slot++) {
    const int32_t index = cache.slotIndex(query.sequence, slot);
    if (!cache.isVisible(query.position, cache.slotPositions[index])) continue;
    const double logit = logitOf(cache, query.values, cache.keysOf(index, query.kvHead, 1, scratch.key));
    if (logit == -INFINITY) continue;
    if (logit > top || logit != logit) {
      const double shrink = top == -INFINITY ? 0 : exp(top - logit);
      denominator *= shrink;
      for (int32_t i = 0; i < cache.valueDim; i++) sums[i] *= shrink;
      top = logit;
    }
    const double weight = exp(logit - top);
    denominator += weight;
    const float* value = cache.valuesOf(index, query.kvHead, 1, scratch.value);
    for (int32_t i = 0; i < cache.valueDim; i++) sums[i] += weight * value[i];
  }
  *to.maximum = static_cast<float>(top);
  // the sums become relative to the maximum rounded to f32, as it is stored
  const double rounding = top == -INFINITY ? 0 : exp(top - static_cast<double>(*to.maximum));
  *to.denominator = static_cast<float>(denominator * rounding);
  for (int32_t i = 0; i < cache.valueDim; i++) to.sums[i] = static_cast<float>(sums[i] * rounding);
}

}  // namespace WINNOW_NAMESPACE
