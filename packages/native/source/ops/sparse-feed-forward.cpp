/**
 * Gated FFN of active neurons: y = previous + sum_j kind(g_j . x) (u_j . x) d_j, where the gate, up and down rows g, u and d of a neuron
 * are adjacent; for up to three tokens. Work items: groups of NEURON_GROUP neurons, whose sums are then added in the order of the neurons,
 * so that results do not depend on the number of threads. Repacked neurons use 8-bit activations as they are; other rows are dequantized.
 */
#include "../ffn/activations.h"
#include "../ffn/repacked-neurons.h"
#include "../gemm/int8-matmul.h"
#include "../generated/operands/sparse-feed-forward.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
using namespace operands::sparse_feed_forward;

/** Maximum number of groups whose sums are kept at once, by several threads and by one, so that they fit its caches. */
constexpr int MAX_PARTS = 32;
constexpr int MAX_OWN_PARTS = 4;

/** A record as one thread computes it. */
class FeedForward {
 public:
  FeedForward(const Record& record, Threads& threads) : record_(record), threads_(threads) {
    // every thread stores the activations in its own scratch, which takes no longer than a barrier
    const float* from = x::address(record);
    if (!isRepacked_) copyTokens(from, numTokens_, width_, record.hasFlag(FLAG_INT8), reinterpret_cast<float*>(tokens_));
    for (int t = 0; isRepacked_ && t < numTokens_; t++) {
      quantizeFours(dtype_, from + t * static_cast<size_t>(width_), numFours_, foursOf(t));
    }
  }

  void run() {
    const int numThreads = threads_.numThreads();
    const int numGroups = (active_.numActive + NEURON_GROUP - 1) / NEURON_GROUP;
    const int maxParts = numThreads > 1 ? MAX_PARTS : MAX_OWN_PARTS;
    const int numRounds = numGroups <= maxParts ? 1 : (numGroups + maxParts - 1) / maxParts;
    const int even = ((numGroups + numRounds - 1) / numRounds + numThreads - 1) / numThreads * numThreads;
    const int size = even < maxParts ? even : maxParts;
    int first = 0;
    do {
      const int numParts = numGroups - first < size ? numGroups - first : size;
      if (first > 0 && !threads_.barrier()) return;
      computeParts(first, numParts);
      if (!threads_.barrier()) return;
      addParts(first == 0 && !previous::isPresent(record_) ? nullptr : first == 0 ? previous::address(record_) : y_, numParts);
      first += size;
    } while (first < numGroups);
  }

 private:
  uint8_t* foursOf(int token) const { return tokens_ + token * static_cast<size_t>(numFours_) * FOUR_BYTES; }

  /** Each work item is taken while the previous one is computed, so that its first neurons can be prefetched. */
  void computeParts(int first, int numParts) {
    for (int part = threads_.nextItems(1), next; part < numParts; part = next) {
      next = threads_.nextItems(1);
      memset(sums_, 0, numSums_ * sizeof(float));
      const int begin = (first + part) * NEURON_GROUP;
      const int end = begin + NEURON_GROUP < active_.numActive ? begin + NEURON_GROUP : active_.numActive;
      for (int j = begin; j < end; j += ROWS_AT_ONCE) {
        const int ahead = j + ROWS_AT_ONCE < end ? j + ROWS_AT_ONCE : next < numParts ? (first + next) * NEURON_GROUP : j;
        addNeurons(active_.from(j, ahead), end - j < ROWS_AT_ONCE ? end - j : ROWS_AT_ONCE);
      }
      memcpy(parts_ + part * numSums_, sums_, numSums_ * sizeof(float));
    }
  }

  /** Adds the outputs of the first `numNeurons` neurons to the sums. */
  void addNeurons(const ScatteredRows& rows, int numNeurons) {
    float gate[MAX_GATHER_TOKENS * ROWS_AT_ONCE] = {};
    float up[MAX_GATHER_TOKENS * ROWS_AT_ONCE] = {};
    multiply(rows, 0, gate);
    multiply(rows, rowBytes_, up);
    for (int t = 0; t < numTokens_; t++) {
      float* at = gate + t * ROWS_AT_ONCE;
      storeFloats(at, activate<ROWS_AT_ONCE>(kind_, loadFloats<ROWS_AT_ONCE>(at)) * loadFloats<ROWS_AT_ONCE>(up + t * ROWS_AT_ONCE));
      for (int r = numNeurons; r < ROWS_AT_ONCE; r++) at[r] = 0;
      if (isRepacked_) addRepacked(dtype_, rows, 2 * rowBytes_, at, numFours_, sums_ + t * stride_);
    }
    if (!isRepacked_) addScattered(dtype_, rows, 2 * rowBytes_, numNeurons, width_, gate, numTokens_, sums_, stride_);
  }

  /** The dot products of the gate rows (`offset` 0) or up rows with each token. */
  void multiply(const ScatteredRows& rows, size_t offset, float* dots) {
    if (!isRepacked_) return dotScattered(dtype_, rows, offset, width_, reinterpret_cast<float*>(tokens_), numTokens_, dots);
    for (int t = 0; t < numTokens_; t++) dotRepacked(dtype_, rows, offset, foursOf(t), numFours_, dots + t * ROWS_AT_ONCE);
  }

  /** y = from, or zeros where it is null, plus all parts, in order: this thread's share of the columns. */
  void addParts(const float* from, int numParts) {
    const int share = static_cast<int>(paddedColumns(static_cast<size_t>(width_ / threads_.numThreads() + 1)));
    const int begin = threads_.thread() * share;
    const int end = begin + share < width_ ? begin + share : width_;
    for (int t = 0; begin < end && t < numTokens_; t++) {
      const size_t at = t * static_cast<size_t>(width_) + begin;
      addSums(parts_ + t * stride_ + begin, numParts, numSums_, end - begin, from == nullptr ? nullptr : from + at, y_ + at);
    }
  }

  const Record& record_;
  Threads& threads_;
  const int32_t dtype_ = weight::dtype(record_);
  const bool isRepacked_ = record_.hasFlag(FLAG_REPACKED);
  const int32_t kind_ = attributes::kind(record_);
  const int numTokens_ = x::numTokens(record_);
  const int width_ = x::dim(record_);
  const int numFours_ = width_ / NEURON_COLUMNS;
  const size_t rowBytes_ = bytesOf(dtype_, static_cast<uint64_t>(width_));
  const ActiveRows active_ = {weight::address(record_), 3 * rowBytes_, rows::address(record_), *count::address(record_)};
  float* const y_ = y::address(record_);
  /** Floats between tokens, and those of all tokens. */
  const size_t stride_ = paddedColumns(static_cast<size_t>(width_));
  const size_t numSums_ = static_cast<size_t>(numTokens_) * stride_;
  uint8_t* const tokens_ = aligned(record_.localScratch());
  float* const sums_ = reinterpret_cast<float*>(tokens_) + numSums_;
  float* const parts_ = reinterpret_cast<float*>(aligned(record_.sharedScratch()));
};

bool supports(const Record& record) { return canDequantize(weight::dtype(record)); }

size_t tokenBytes(const Record& record) { return MAX_GATHER_TOKENS * paddedColumns(static_cast<size_t>(x::dim(record))) * sizeof(float); }
uint64_t sharedBytes(const Record& record) { return MAX_PARTS * tokenBytes(record) + 64; }
uint64_t localBytes(const Record& record) { return 2 * tokenBytes(record) + 64; }
bool takes(const Record& record) { return x::numTokens(record) <= MAX_GATHER_TOKENS; }

void run(const Record& record, Threads& threads) { FeedForward(record, threads).run(); }
}  // namespace

extern const Kernel sparseFeedForwardKernel = {supports, sharedBytes, localBytes, run, takes};
}  // namespace WINNOW_NAMESPACE
