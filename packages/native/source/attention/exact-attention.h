/** Attention of one query, key by key in f64, as @winnow/ops defines it: for results that are not finite. */
#pragma once
#include "kv-cache.h"

namespace WINNOW_NAMESPACE {

struct ExactQuery {
  /** Not scaled. */
  const float* values;
  int32_t position, sequence, kvHead;
};

/** A partial state: `sums` are relative to the maximum. */
struct ExactState {
  float *maximum, *denominator, *sums;
};

/** Room for a key, a value and the sums in f64. */
struct ExactScratch {
  float *key, *value;
  double* sums;
};

/** Attends to slots `[begin, end)`; hidden slots are never read. */
void attendExactly(const KvCache& cache, const ExactQuery& query, int32_t begin, int32_t end, const ExactState& to, const ExactScratch& scratch);

}  // namespace WINNOW_NAMESPACE
