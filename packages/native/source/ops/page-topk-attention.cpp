/**
 * Attention to the pages with the largest upper bounds of their logits, up to a budget, and to pages with sinks or local positions;
 * @winnow/ops defines the certificate and the error bound. Work items: (token, KV head). Records with `epsilon` or masses are
 * left to the interpreter.
 */
#include "../generated/operands/page-topk-attention.h"
#include "../attention/flash-tile.h"
#include "../attention/page-selection.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {

namespace {

namespace op = operands::page_topk_attention;

/** A page that is not always attended to. */
struct OpenPage {
  int32_t page;
  /** Number of visible keys. */
  int32_t numVisible;
  /** Row in the tensors of boxes. */
  int32_t box;
  bool isSelected;
};

struct Operands {
  int32_t pageSize, numParts, sinks, local, budget;
  const int32_t* boxCounts;
  const float *keyMin, *keyMax, *valueNorms;
  float *y, *certificate, *errorBound;
  int32_t *pages, *pairs;

  Operands(const Record& record, const KvCache& cache)
      : numParts(op::keyMin::numParts(record)),
        sinks(op::attributes::sinks(record) > 0 ? op::attributes::sinks(record) : 0),
        local(op::attributes::local(record)),
        budget(op::attributes::budget(record)),
        boxCounts(op::boxCounts::address(record)),
        keyMin(op::keyMin::address(record)),
        keyMax(op::keyMax::address(record)),
        valueNorms(op::valueNorms::address(record)),
        y(op::y::address(record)),
        certificate(op::certificate::address(record)),
        errorBound(op::errorBound::address(record)),
        pages(op::pages::address(record)),
        pairs(op::pairs::address(record)) {
    pageSize = cache.blockSize / numParts;
  }
};

/** Scratch after that of the tile. */
struct PageScratch {
  OpenPage* pages;
  /** Bounds per head `[groupSize, open pages]`, and the ranks of the largest ones. */
  float* bounds;
  uint32_t* ranks;
  uint8_t* end;

  PageScratch(const KvCache& cache, int32_t numParts, uint8_t* base) {
    const size_t numPages = static_cast<size_t>(cache.maxBlocks) * numParts;
    pages = reinterpret_cast<OpenPage*>(base);
    bounds = reinterpret_cast<float*>(base + numPages * sizeof(OpenPage));
    ranks = reinterpret_cast<uint32_t*>(bounds + numPages * cache.groupSize);
    end = reinterpret_cast<uint8_t*>(ranks + numPages);
  }
};

/** What of a page a query at a position sees. */
struct Sight {
  int32_t numVisible;
  /** Whether a sink or a local position is among them. */
  bool isAttended;
};

Sight lookAt(const KvCache& cache, const Operands& from, int32_t position, const int32_t* positions, int32_t count) {
  int32_t numVisible = 0;
  int32_t attended = 0;
  // without branches, so that the loop becomes vectors
  for (int32_t i = 0; i < count; i++) {
    const int32_t distance = position - positions[i];
    const int32_t isVisible = (positions[i] >= 0) & (distance >= cache.minDistance) & (distance <= cache.maxDistance);
    numVisible += isVisible;
    attended |= isVisible & ((positions[i] < from.sinks) | (distance < from.local));
  }
  return {numVisible, attended != 0};
}

/** Upper bounds of the logits of a page for each head of the group, and the largest of them; NaN wins. */
float boundPage(const KvCache& cache, const Operands& from, const float* queries, int32_t box, float* bounds, size_t stride) {
  const float* low = from.keyMin + static_cast<size_t>(box) * cache.headDim;
  const float* high = from.keyMax + static_cast<size_t>(box) * cache.headDim;
  float top = -INFINITY;
  for (int32_t head = 0; head < cache.groupSize; head++, queries += cache.headDim) {
    auto sums = splatTo<LANES>(0);
    int32_t i = 0;
    for (; i + LANES <= cache.headDim; i += LANES) {
      const auto query = loadFloats<LANES>(queries + i) * cache.scale;
      sums += larger(query * loadFloats<LANES>(low + i), query * loadFloats<LANES>(high + i));
    }
    float bound = 0;
    for (int32_t lane = 0; lane < LANES; lane++) bound += sums[lane];
    for (; i < cache.headDim; i++) {
      const float query = queries[i] * cache.scale;
      bound += query * low[i] < query * high[i] ? query * high[i] : query * low[i];
    }
    if (cache.softCap != 0) bound = cache.softCap * tanhf(bound / cache.softCap);
    bounds[head * stride] = bound;
    if (bound > top || bound != bound) top = bound;
  }
  return top;
}

/** The pages of one token and KV head. */
template <class FLASH> class PageAttention {
 public:
  PageAttention(const KvCache& cache, const Operands& from, const Tile& tile, const TileScratch& rows, const PageScratch& scratch,
                FLASH& flash)
      : cache_(cache), from_(from), tile_(tile), rows_(rows), scratch_(scratch), flash_(flash) {
    stride_ = static_cast<size_t>(cache.maxBlocks) * from.numParts;
  }

  void run() {
    const int32_t numAttended = openPages();
    const int32_t budget = from_.budget < 0 ? numOpen_ : least(from_.budget, numOpen_);
    selectPages(budget);
    const size_t at = static_cast<size_t>(tile_.firstToken) * cache_.numKvHeads + tile_.kvHead;
    from_.pages[at] = numAttended + budget;
    from_.pairs[at] = numKeys_;
    for (int32_t lane = 0; lane < tile_.numLanes(); lane++) writeLane(lane, budget == numOpen_);
  }

 private:
  int32_t slotsOf(int32_t page) const { return least(from_.pageSize, tile_.context - page * from_.pageSize); }

  /** Attends to the pages that always are, and returns their number; other pages with visible keys become open. */
  int32_t openPages() {
    const int32_t position = cache_.positions[tile_.firstToken];
    int32_t numAttended = 0;
    for (int32_t page = 0; page * from_.pageSize < tile_.context; page++) {
      const int32_t index = cache_.slotIndex(tile_.sequence, page * from_.pageSize);
      const Sight sight = lookAt(cache_, from_, position, cache_.slotPositions + index, slotsOf(page));
      if (sight.numVisible == 0) continue;
      const int32_t part = index / cache_.blockSize * from_.numParts + page % from_.numParts;
      const int32_t box = part * cache_.numKvHeads + tile_.kvHead;
      if (sight.isAttended || from_.boxCounts[box] != from_.pageSize) {
        attendPage(page, sight.numVisible);
        numAttended++;
      } else {
        const float top = boundPage(cache_, from_, flash_.queryOf(0), box, scratch_.bounds + numOpen_, stride_);
        scratch_.ranks[numOpen_] = rankOf(top);
        scratch_.pages[numOpen_++] = {page, sight.numVisible, box, false};
      }
    }
    return numAttended;
  }

  /** Attends to the `budget` open pages with the largest bounds; ties go to the lower page. */
  void selectPages(int32_t budget) {
    if (budget <= 0) return;
    const uint32_t threshold = kthLargest(scratch_.ranks, numOpen_, budget);
    int32_t numTied = budget;
    for (int32_t i = 0; i < numOpen_; i++) numTied -= scratch_.ranks[i] > threshold ? 1 : 0;
    for (int32_t i = 0; i < numOpen_; i++) {
      const bool isTied = scratch_.ranks[i] == threshold && numTied > 0;
      if (isTied) numTied--;
      else if (scratch_.ranks[i] <= threshold) continue;
      scratch_.pages[i].isSelected = true;
      attendPage(scratch_.pages[i].page, scratch_.pages[i].numVisible);
    }
  }

  /** Attends to the visible slots of a page, in runs: hidden ones may not be finite. */
  void attendPage(int32_t page, int32_t numVisible) {
    numKeys_ += numVisible;
    const int32_t index = cache_.slotIndex(tile_.sequence, page * from_.pageSize);
    const int32_t count = slotsOf(page);
    if (numVisible == count) return attendRun(index, count);
    const int32_t position = cache_.positions[tile_.firstToken];
    for (int32_t begin = 0, end; begin < count; begin = end + 1) {
      end = begin;
      while (end < count && cache_.isVisible(position, cache_.slotPositions[index + end])) end++;
      attendRun(index + begin, end - begin);
    }
  }

  void attendRun(int32_t index, int32_t count) {
    for (; count > 0; index += STEP_ROWS, count -= STEP_ROWS) {
      const int32_t step = least(count, STEP_ROWS);
      flash_.attendRows(cache_.keysOf(index, tile_.kvHead, step, rows_.keys),
                        cache_.valuesOf(index, tile_.kvHead, step, rows_.values), step,
                        nullptr, Prefetch(nullptr, 0), Prefetch(nullptr, 0));
    }
  }

  void writeLane(int32_t lane, bool isComplete) const {
    const size_t row = flash_.rowOf(lane);
    float* y = from_.y + row * cache_.valueDim;
    const float sum = flash_.sumOf(lane);
    flash_.writeLane(lane, sum == 0 ? 0 : 1 / sum, y);
    double squares = 0;
    for (int32_t i = 0; i < cache_.valueDim; i++) squares += static_cast<double>(y[i]) * y[i];
    const double certificate = isComplete ? 0 : missingMass(lane);
    from_.certificate[row] = static_cast<float>(certificate);
    from_.errorBound[row] = static_cast<float>(certificate * (static_cast<double>(largestNorm()) + sqrt(squares)));
  }

  /** An upper bound of the softmax mass of the pages that were not selected. */
  double missingMass(int32_t lane) const {
    const float* bounds = scratch_.bounds + static_cast<size_t>(lane) * stride_;
    float top = -INFINITY;
    for (int32_t i = 0; i < numOpen_; i++) {
      if (!scratch_.pages[i].isSelected && (bounds[i] > top || bounds[i] != bounds[i])) top = bounds[i];
    }
    double rest = 0;
    for (int32_t i = 0; i < numOpen_ && top != -INFINITY; i++) {
      const OpenPage& page = scratch_.pages[i];
      if (!page.isSelected) rest += page.numVisible * exp(static_cast<double>(bounds[i]) - top);
    }
    const double mass = rest * exp(static_cast<double>(top) - flash_.maximumOf(lane));
    return mass == INFINITY ? 1 : mass / (mass + flash_.sumOf(lane));
  }

  /** The largest norm of a value in the pages that were not selected. */
  float largestNorm() const {
    float norm = 0;
    for (int32_t i = 0; i < numOpen_; i++) {
      const float own = from_.valueNorms[scratch_.pages[i].box];
      if (!scratch_.pages[i].isSelected && own > norm) norm = own;
    }
    return norm;
  }

  const KvCache& cache_;
  const Operands& from_;
  const Tile& tile_;
  const TileScratch& rows_;
  const PageScratch& scratch_;
  FLASH& flash_;
  size_t stride_;
  int32_t numOpen_ = 0;
  int32_t numKeys_ = 0;
};

void run(const Record& record, Threads& threads) {
  const KvCache cache(record);
  const Operands from(record, cache);
  const TileScratch rows(cache, record.localScratch());
  const PageScratch scratch(cache, from.numParts, rows.end);
  const int32_t numItems = cache.numTokens * cache.numKvHeads;
  for (int32_t item = threads.nextItems(1); item < numItems; item = threads.nextItems(1)) {
    const int32_t token = item / cache.numKvHeads, kvHead = item % cache.numKvHeads;
    const int32_t sequence = cache.sequences[token];
    const int32_t firstHead = kvHead * cache.groupSize;
    const Tile tile = {token, token + 1, firstHead, firstHead + cache.groupSize, kvHead, sequence, cache.contextLengths[sequence], 0};
    openTile(cache, tile, rows, [&](auto flash) { PageAttention(cache, from, tile, rows, scratch, flash).run(); });
  }
}

bool supports(const Record& record) {
  const KvCache cache(record);
  return hasRowTypes(record) && cache.groupSize <= MAX_LANES && op::attributes::epsilon(record) == 0 && !op::mass::isPresent(record);
}

uint64_t sharedBytes(const Record&) { return 0; }

uint64_t localBytes(const Record& record) {
  const KvCache cache(record);
  const PageScratch scratch(cache, op::keyMin::numParts(record), nullptr);
  return tileScratchBytes(record) + reinterpret_cast<uintptr_t>(scratch.end);
}

}  // namespace

extern const Kernel pageTopkAttentionKernel;
const Kernel pageTopkAttentionKernel = {supports, sharedBytes, localBytes, run};

}  // namespace WINNOW_NAMESPACE
