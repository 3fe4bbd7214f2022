/** Attention of one query, key by key in f64, as @winnow/ops defines it: for results that are not finite. */
#pragma once
#include <math.h>
#include "kv-cache.h"

namespace WINNOW_NAMESPACE {
/** An online softmax over the keys that one query sees. */
class ExactSoftmax {
 public:
  /** @param sums room for `valueDim` numbers; `start` logit of a key without a value, -Infinity for none */
  ExactSoftmax(const KvCache& cache, const float* query, double* sums, double start = -INFINITY)
      : cache_(cache), query_(query), sums_(sums), maximum_(start), sum_(start != -INFINITY) {
    for (int32_t i = 0; i < cache.valueDim; i++) sums[i] = 0;
  }

  void setQuery(const float* query) { query_ = query; }

  void add(const float* key, const float* value, float bias) {
    const double logit = logitOf(key) + bias;
    if (logit == -INFINITY) return;
    if (logit > maximum_ || logit != logit) {
      const double shrink = maximum_ == -INFINITY ? 0 : exp(maximum_ - logit);
      sum_ *= shrink;
      for (int32_t i = 0; i < cache_.valueDim; i++) sums_[i] *= shrink;
      maximum_ = logit;
    }
    const double weight = exp(logit - maximum_);
    sum_ += weight;
    for (int32_t i = 0; i < cache_.valueDim; i++) sums_[i] += weight * value[i];
  }

  /** Writes the state, or with `isFinal` the normalized output as `values`. */
  void write(float* maximum, float* sum, float* values, bool isFinal) const {
    *maximum = static_cast<float>(maximum_);
    // the sums become relative to the maximum rounded to f32, as it is stored
    const double rounding = maximum_ == -INFINITY ? 0 : exp(maximum_ - static_cast<double>(*maximum));
    *sum = static_cast<float>(sum_ * rounding);
    const float factor = !isFinal ? 1 : *sum == 0 ? 0 : 1 / *sum;
    for (int32_t i = 0; i < cache_.valueDim; i++) values[i] = static_cast<float>(sums_[i] * rounding) * factor;
  }

 private:
  double logitOf(const float* key) const {
    double sum = 0;
    for (int32_t i = 0; i < cache_.headDim; i++) sum += static_cast<double>(query_[i]) * key[i];
    const double logit = sum * cache_.scale;
    return cache_.softCap == 0 ? logit : cache_.softCap * tanh(logit / cache_.softCap);
  }

  const KvCache& cache_;
  const float* query_;
  double* sums_;
  double maximum_, sum_;
};
}  // namespace WINNOW_NAMESPACE
