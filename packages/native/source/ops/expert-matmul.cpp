/**
 * expert-matmul with repacked weights and 8-bit activations: y[t, i] = W[ids[t, i]] x[t, i]. Every thread sorts the (token, choice)
 * pairs by expert in its own scratch. Work items: runs of output rows of selected experts with a slot, then selected experts
 * without one, whose outputs are 0. An expert with few pairs uses qgemv, others use panels over gathered activations.
 */
#include "../gemm/int8-matmul.h"
#include "../gemm/qgemm.h"
#include "../gemm/qgemv.h"
#include "../generated/operands/expert-matmul.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
using namespace operands::expert_matmul;

/** Rows of a work item: many, because activations are gathered and repeated for each. */
constexpr int ITEM_ROWS = 4 * MC;
/** Pairs per pass over the weights. */
constexpr int MAX_PAIRS = 64;
/** Minimum number of pairs of an expert for panels. */
constexpr int MIN_PANEL_PAIRS = 6;

/** The pairs in the order of their experts, as every thread sorts them for itself. */
struct SortedPairs {
  /** The pairs of expert e are `order[starts[e], starts[e + 1])`, ascending. */
  int32_t* starts;
  /** Selected experts with a slot from the front; those without one from the back. */
  int32_t* active;
  int32_t* order;
  int numActive = 0;
  int numAbsent = 0;

  static size_t sizeBytes(size_t numExperts, size_t numPairs) { return aligned((2 * numExperts + 2 + numPairs) * sizeof(int32_t)); }

  /** @param slots the slot of each expert, negative without one, or null if all have their own */
  SortedPairs(int32_t* at, int numExperts, const int32_t* ids, int numPairs, const int32_t* slots)
      : starts(at), active(at + numExperts + 2), order(active + numExperts) {
    // each start is one place ahead at first, and advances past the pairs of its expert
    memset(starts, 0, static_cast<size_t>(numExperts + 2) * sizeof(int32_t));
    for (int pair = 0; pair < numPairs; pair++) starts[ids[pair] + 2]++;
    for (int expert = 0; expert < numExperts; expert++) {
      if (starts[expert + 2] > 0) {
        if (slots == nullptr || slots[expert] >= 0) active[numActive++] = expert;
        else active[numExperts - ++numAbsent] = expert;
      }
      starts[expert + 2] += starts[expert + 1];
    }
    for (int pair = 0; pair < numPairs; pair++) order[starts[ids[pair] + 1]++] = pair;
  }
};

int numExpertsOf(const Record& record) { return slots::isPresent(record) ? slots::numExperts(record) : weight::numSlots(record); }

class ExpertMatmul {
 public:
  ExpertMatmul(const Record& record, Threads& threads) : record_(record), threads_(threads) {}

  void run(bool reusesActivations) {
    if (!reusesActivations) {
      quantizeAll(x_, activations_, numRows_ * numBlocks_, threads_);
      if (!threads_.barrier()) return;
    }
    const int perExpert = (numOutputs_ + ITEM_ROWS - 1) / ITEM_ROWS;
    const int numItems = pairs_.numActive * perExpert;
    for (int item = threads_.nextItems(1); item < numItems + pairs_.numAbsent; item = threads_.nextItems(1)) {
      if (item >= numItems) clearExpert(pairs_.active[numExperts_ - 1 - item + numItems]);
      else multiplyExpert(pairs_.active[item / perExpert], item % perExpert * ITEM_ROWS);
    }
  }

 private:
  size_t rowOf(int pair) const { return static_cast<size_t>(pairs_.order[pair] / pairsPerRow_); }

  /** Zeros the outputs of an expert without a slot. */
  void clearExpert(int expert) {
    for (int p = pairs_.starts[expert]; p < pairs_.starts[expert + 1]; p++) {
      memset(y_ + static_cast<size_t>(pairs_.order[p]) * numOutputs_, 0, static_cast<size_t>(numOutputs_) * sizeof(float));
    }
  }

  /** Multiplies a work item of an expert by the activations of its pairs. */
  void multiplyExpert(int expert, int begin) {
    const size_t slot = static_cast<size_t>(slots_ == nullptr ? expert : slots_[expert]);
    const uint8_t* matrix = weight_ + slot * (numOutputs_ / GROUP_SIZE) * groupBytes_;
    const int end = begin + ITEM_ROWS < numOutputs_ ? begin + ITEM_ROWS : numOutputs_;
    const int last = pairs_.starts[expert + 1];
    const bool isFew = last - pairs_.starts[expert] < MIN_PANEL_PAIRS || record_.isInvariant(x::numTokens(record_));
    const int step = isFew ? MAX_GEMV_TOKENS : MAX_PAIRS;
    for (int p = pairs_.starts[expert]; p < last; p += step) {
      const int stop = p + step < last ? p + step : last;
      if (isFew) multiplyFew(matrix, begin, end, p, stop);
      else multiplyMany(matrix, begin, end, p, stop);
    }
  }

  void multiplyFew(const uint8_t* matrix, int begin, int end, int first, int last) {
    RepeatedToken tokens[MAX_GEMV_TOKENS];
    for (int p = first; p < last; p++) {
      uint8_t* to = work_ + (p - first) * aligned(repeatedBytes(numBlocks_));
      tokens[p - first] = repeatToken(dtype_, activations_, rowOf(p) * numBlocks_, numBlocks_, to);
    }
    for (int row = begin; row < end; row += GROUP_SIZE) {
      float sums[GROUP_SIZE * MAX_GEMV_TOKENS];
      qgemvGroup(dtype_, matrix + static_cast<size_t>(row / GROUP_SIZE) * groupBytes_, numBlocks_, tokens, last - first, sums);
      for (int p = first; p < last; p++) {
        float* to = y_ + static_cast<size_t>(pairs_.order[p]) * numOutputs_ + row;
        memcpy(to, sums + GROUP_SIZE * (p - first), GROUP_SIZE * sizeof(float));
      }
    }
  }

  /** Gathers the activations as `[block][pair]`, with zeros for pairs beyond the last, and multiplies panels. */
  void multiplyMany(const uint8_t* matrix, int begin, int end, int first, int last) {
    const Activations gathered(work_ + aligned(sizeof(QgemmScratch)), static_cast<size_t>(MAX_PAIRS) * numBlocks_);
    const int count = (last - first + 3) / 4 * 4;
    for (int i = 0; i < count; i++) {
      if (first + i >= last) {
        clearBlocks(gathered, i, numBlocks_, count);
        continue;
      }
      const size_t from = rowOf(first + i) * numBlocks_;
      for (int block = 0; block < numBlocks_; block++) {
        copyBlock(activations_, from + block, gathered, static_cast<size_t>(block) * count + i);
      }
    }
    const Qgemm product = {matrix, groupBytes_, numBlocks_, gathered, count, last - first, y_, numOutputs_, nullptr, pairs_.order + first};
    auto& scratch = *reinterpret_cast<QgemmScratch*>(work_);
    for (int row = begin; row < end; row += MC) qgemmPanel(dtype_, product, row, row + MC < end ? row + MC : end, scratch);
  }

  const Record& record_;
  Threads& threads_;
  const int32_t dtype_ = weight::dtype(record_);
  const int numInputs_ = weight::numInputs(record_), numOutputs_ = weight::numOutputs(record_);
  const int numBlocks_ = numInputs_ / 32;
  const size_t groupBytes_ = GROUP_SIZE * bytesOf(dtype_, static_cast<uint64_t>(numInputs_));
  const float* x_ = x::address(record_);
  const int numRows_ = x::numTokens(record_) * x::rowsPerToken(record_);
  const int pairsPerRow_ = x::rowsPerToken(record_) == 1 ? ids::k(record_) : 1;
  const uint8_t* weight_ = weight::address(record_);
  const int32_t* slots_ = slots::isPresent(record_) ? slots::address(record_) : nullptr;
  float* y_ = y::address(record_);
  const int numExperts_ = numExpertsOf(record_);
  uint8_t* local_ = aligned(record_.localScratch());
  const SortedPairs pairs_{reinterpret_cast<int32_t*>(local_), numExperts_, ids::address(record_), ids::numElements(record_), slots_};
  uint8_t* work_ = local_ + SortedPairs::sizeBytes(numExperts_, ids::numElements(record_));
  const Activations activations_{aligned(record_.sharedScratch()), static_cast<size_t>(numRows_) * numBlocks_};
};

bool supports(const Record& record) {
  return record.hasFlag(FLAG_INT8) && record.hasFlag(FLAG_REPACKED) && canRepack(weight::dtype(record));
}

uint64_t sharedBytes(const Record& record) {
  const size_t numRows = static_cast<size_t>(x::numTokens(record)) * x::rowsPerToken(record);
  return activationBytes(numRows * (weight::numInputs(record) / 32)) + 64;
}

uint64_t localBytes(const Record& record) {
  const size_t numBlocks = static_cast<size_t>(weight::numInputs(record)) / 32;
  const size_t few = MAX_GEMV_TOKENS * aligned(repeatedBytes(numBlocks));
  const size_t many = aligned(sizeof(QgemmScratch)) + activationBytes(MAX_PAIRS * numBlocks);
  return 64 + SortedPairs::sizeBytes(numExpertsOf(record), ids::numElements(record)) + (few > many ? few : many);
}

void run(const Record& record, Threads& threads) { ExpertMatmul(record, threads).run(record.hasFlag(FLAG_REUSE)); }
}  // namespace

extern const Kernel expertMatmulKernel = {supports, sharedBytes, localBytes, run};
}  // namespace WINNOW_NAMESPACE
