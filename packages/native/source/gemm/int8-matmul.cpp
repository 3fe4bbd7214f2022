/**
 * matmul with repacked weights and 8-bit activations. Work items: groups of four rows. Up to three tokens use qgemv, and all tokens
 * of batch-invariant steps; more use panels. The rows beyond the last whole group are computed in f32.
 */
#include "int8-matmul.h"
#include "../generated/operands/matmul.h"
#include "dequantize.h"
#include "qgemm.h"
#include "qgemv.h"

namespace WINNOW_NAMESPACE {
namespace {
using namespace operands::matmul;

static_assert(MAX_GEMV_TOKENS == MIN_PANEL_TOKENS - 1);

/** Guided scheduling: a work item is `1 / SHARES` of a thread's share of the remaining rows. */
constexpr int SHARES = 2;
/** Tokens of panels are padded with zeros to a multiple of four. */
int paddedTokens(int numTokens) { return (numTokens + 3) / 4 * 4; }

/** Blocks and tokens of a work item of quantization: the codes and metas of the tokens fill whole pairs of cache lines. */
constexpr int RUN_BLOCKS = 8;
constexpr int RUN_TOKENS = 8;

/** Whether the level has kernels for tiles of AMX, which some of its processors have. */
constexpr bool CAN_TILE = LANES == 16;

/** A record as one thread computes it. */
class Int8Matmul {
 public:
  Int8Matmul(const Record& record, Threads& threads) : record_(record), threads_(threads) {}

  void run(bool reusesActivations) {
    if (isOwn_) {
      quantizeBlocks(x_, activations_, 0, static_cast<size_t>(numTokens_) * numBlocks_, 1);
      local_ = aligned(local_ + activationBytes(static_cast<size_t>(numTokens_) * numBlocks_));
    } else if (!reusesActivations) {
      if (CAN_TILE && isTiles_) roundTokens();
      else if (isPanels_) quantizeColumns();
      else quantizeAll(x_, activations_, numTokens_ * numBlocks_, threads_);
      if (!threads_.barrier()) return;
    }
    const int numRepacked = numOutputs_ / GROUP_SIZE * GROUP_SIZE;
    const bool isLast = isPanels_ ? gemm(numRepacked) : gemv(numRepacked);
    for (int row = numRepacked; isLast && row < numOutputs_; row++) multiplyPlainRow(row);
  }

 private:
  int storedTokens() const { return isPanels_ ? paddedTokens(numTokens_) : numTokens_; }

  /** Work items: a few blocks of a few tokens, so that no two threads write to one cache line. */
  void quantizeColumns() {
    const int numRuns = (numBlocks_ + RUN_BLOCKS - 1) / RUN_BLOCKS;
    const int numItems = (storedTokens() + RUN_TOKENS - 1) / RUN_TOKENS * numRuns;
    for (int item = threads_.nextItems(1); item < numItems; item = threads_.nextItems(1)) {
      const int begin = item % numRuns * RUN_BLOCKS, first = item / numRuns * RUN_TOKENS;
      for (int block = begin; block < begin + RUN_BLOCKS && block < numBlocks_; block++) {
        for (int t = first; t < first + RUN_TOKENS && t < storedTokens(); t++) quantizeAt(t, block);
      }
    }
  }

  void quantizeAt(int token, int block) {
    const size_t at = static_cast<size_t>(block) * storedTokens() + token;
    if (token < numTokens_) quantizeBlock(x_ + static_cast<size_t>(token) * numInputs_ + block * 32, activations_, at);
    else clearBlocks(activations_, at, 1, 1);
  }

  /** Work items: tokens. */
  void roundTokens() {
    for (int t = threads_.nextItems(1); t < numTokens_; t = threads_.nextItems(1)) {
      roundToken(x_ + static_cast<size_t>(t) * numInputs_, numBlocks_, roundedAt(t));
    }
  }

  /** A token in bfloat16: these take less space than quantized ones, also with a tile of padding. */
  uint16_t* roundedAt(int token) const { return reinterpret_cast<uint16_t*>(activations_.codes) + static_cast<size_t>(token) * numInputs_; }

  /** Returns whether this thread got the first work item beyond the repacked rows, which exactly one thread does. */
  bool gemm(int numRepacked) {
    const Qgemm product = {weight_, groupBytes_, numBlocks_, activations_, storedTokens(), numTokens_, y_, numOutputs_, bias_};
    auto& scratch = *reinterpret_cast<QgemmScratch*>(local_);
    int begin = threads_.nextItems(MC);
    for (; begin < numRepacked; begin = threads_.nextItems(MC)) {
      const int end = begin + MC < numRepacked ? begin + MC : numRepacked;
      if (CAN_TILE && isTiles_) qgemmTiles(dtype_, product, begin, end, scratch, local_ + aligned(sizeof(QgemmScratch)));
      else qgemmPanel(dtype_, product, begin, end, scratch);
    }
    return begin == (numRepacked + MC - 1) / MC * MC;
  }

  /** Work items shrink towards the end, so that all threads finish together. The first one of a thread has its own index. */
  bool gemv(int numRepacked) {
    RepeatedToken tokens[MAX_INVARIANT_TOKENS];
    for (int t = 0; t < numTokens_; t++) {
      uint8_t* to = local_ + t * aligned(repeatedBytes(numBlocks_));
      tokens[t] = repeatToken(dtype_, activations_, static_cast<size_t>(t) * numBlocks_, numBlocks_, to);
    }
    int numUnits = 0;
    int next = threads_.firstItem();
    for (int begin = 0; begin < numRepacked; numUnits++) {
      const int end = begin + unitOf(numRepacked - begin) < numRepacked ? begin + unitOf(numRepacked - begin) : numRepacked;
      if (numUnits == next) {
        for (int row = begin; row < end; row += GROUP_SIZE) multiplyGroup(row, tokens);
        next = threads_.nextItem();
      }
      begin = end;
    }
    return next == numUnits;
  }

  /** Rows of the next work item: as those of the interpreter, which prefetches the first one while a thread waits. */
  int unitOf(int numLeft) const {
    const int rows = GROUP_SIZE * (dtype_ == Q8_0 || dtype_ == Q4_0 ? BLOCK_STREAMS : SUPER_BLOCK_STREAMS);
    const int run = numLeft / (SHARES * threads_.numThreads() * rows);
    return run <= 1 ? rows : (run % 8 == 0 ? run - 1 : run) * rows;
  }

  void multiplyGroup(int row, const RepeatedToken* tokens) {
    float sums[4 * MAX_INVARIANT_TOKENS];
    const uint8_t* group = weight_ + static_cast<size_t>(row / GROUP_SIZE) * groupBytes_;
    for (int t = 0; t < numTokens_; t += MAX_GEMV_TOKENS) {
      const int count = t + MAX_GEMV_TOKENS < numTokens_ ? MAX_GEMV_TOKENS : numTokens_ - t;
      qgemvGroup(dtype_, group, numBlocks_, tokens + t, count, sums + GROUP_SIZE * t);
    }
    for (int i = 0; i < GROUP_SIZE * numTokens_; i++) {
      const int output = row + i % GROUP_SIZE;
      y_[static_cast<size_t>(i / GROUP_SIZE) * numOutputs_ + output] = sums[i] + (bias_ == nullptr ? 0 : bias_[output]);
    }
  }

  void multiplyPlainRow(int row) {
    auto* values = reinterpret_cast<float*>(local_);
    dequantize(dtype_, weight_ + static_cast<size_t>(row) * (groupBytes_ / GROUP_SIZE), numInputs_, values);
    for (int t = 0; t < numTokens_; t++) {
      const float sum = dotFloats(values, x_ + static_cast<size_t>(t) * numInputs_, numInputs_);
      y_[static_cast<size_t>(t) * numOutputs_ + row] = sum + (bias_ == nullptr ? 0 : bias_[row]);
    }
  }

  const Record& record_;
  Threads& threads_;
  const int32_t dtype_ = weight::dtype(record_);
  const int numTokens_ = x::numTokens(record_);
  const int numInputs_ = weight::numInputs(record_), numOutputs_ = weight::numOutputs(record_);
  const int numBlocks_ = numInputs_ / 32;
  const size_t groupBytes_ = GROUP_SIZE * bytesOf(dtype_, static_cast<uint64_t>(numInputs_));
  const float* x_ = x::address(record_);
  const uint8_t* weight_ = weight::address(record_);
  float* y_ = y::address(record_);
  const float* bias_ = bias::isPresent(record_) ? bias::address(record_) : nullptr;
  uint8_t* local_ = aligned(record_.localScratch());
  const bool isPanels_ = numTokens_ >= MIN_PANEL_TOKENS && !record_.isInvariant(numTokens_);
  const bool isTiles_ = isPanels_ && record_.hasTiles() && numTokens_ >= MIN_TILE_TOKENS;
  /** Whether every thread quantizes all activations for itself, which is faster than a barrier. */
  const bool isOwn_ = !isPanels_ && numTokens_ * numInputs_ <= MAX_OWN_CODES;
  const Activations activations_{isOwn_ ? local_ : aligned(record_.sharedScratch()), static_cast<size_t>(storedTokens()) * numBlocks_};
};
}  // namespace

void quantizeAll(const float* x, const Activations& to, int32_t numBlocks, Threads& threads) {
  for (int begin = threads.nextItems(8); begin < numBlocks; begin = threads.nextItems(8)) {
    quantizeBlocks(x + static_cast<size_t>(begin) * 32, to, begin, numBlocks - begin < 8 ? numBlocks - begin : 8, 1);
  }
}

bool supportsInt8Matmul(const Record& record) {
  return record.hasFlag(FLAG_INT8) && record.hasFlag(FLAG_REPACKED) && canRepack(weight::dtype(record));
}

uint64_t int8MatmulSharedBytes(const Record& record) {
  const size_t numBlocks = static_cast<size_t>(weight::numInputs(record)) / 32;
  return activationBytes(paddedTokens(x::numTokens(record)) * numBlocks) + 64;
}

uint64_t int8MatmulLocalBytes(const Record& record) {
  const size_t numBlocks = static_cast<size_t>(weight::numInputs(record)) / 32;
  const size_t own = activationBytes(MAX_OWN_CODES / 32) + 64;
  const size_t gemv = own + (record.hasFlag(FLAG_INVARIANT) ? MAX_INVARIANT_TOKENS : MAX_GEMV_TOKENS) * aligned(repeatedBytes(numBlocks));
  const size_t gemm = aligned(sizeof(QgemmScratch)) + (record.hasTiles() ? tilePanelBytes(numBlocks) : 0);
  return 64 + (gemv > gemm ? gemv : gemm);
}

void int8Matmul(const Record& record, Threads& threads) { Int8Matmul(record, threads).run(record.hasFlag(FLAG_REUSE)); }
}  // namespace WINNOW_NAMESPACE
