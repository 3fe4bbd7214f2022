/**
 * Attention to the pages with the largest upper bounds of their logits, up to a budget, and to pages with sinks or local positions;
 * @winnow/ops defines the certificate and the error bound. With `epsilon`, pages are attended to in falling order of their bounds
 * until the certificates of all heads are small enough. Work items: (token, KV head). Records with masses are left to the interpreter.
 */
#include "../generated/operands/page-topk-attention.h"
#include "../attention/flash-tile.h"
#include "../attention/select-largest.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
namespace op = operands::page_topk_attention;

struct Operands : KvCache {
  using KvCache::KvCache;
  int32_t numParts = op::keyMin::numParts(record);
  int32_t pageSize = blockSize / numParts;
  int32_t sinks = op::attributes::sinks(record) > 0 ? op::attributes::sinks(record) : 0;
  int32_t local = op::attributes::local(record), budget = op::attributes::budget(record);
  float epsilon = op::attributes::epsilon(record);
  const int32_t* boxCounts = op::boxCounts::address(record);
  const float *keyMin = op::keyMin::address(record), *keyMax = op::keyMax::address(record);
  const float* valueNorms = op::valueNorms::address(record);
  float *y = op::y::address(record), *certificate = op::certificate::address(record), *errorBound = op::errorBound::address(record);
  int32_t *pages = op::pages::address(record), *pairs = op::pairs::address(record);
};

/** The slots of a page: the index of the first one in the cache, and their number. */
struct Page { int32_t index, count; };

/** Arrays with an element per open page, one that is not always attended to; whole vectors of LANES. */
struct Scratch {
  const Operands& from;
  ScratchArrays& arrays;
  TileScratch tile{from, arrays};
  size_t numHeads = static_cast<size_t>(from.groupSize);
  size_t stride = (static_cast<size_t>(from.maxBlocks) * from.numParts + LANES) / LANES * LANES;
  Page* pages = arrays.take<Page>(stride);
  /** Rows of the pages in the tensors of boxes. */
  int32_t* boxes = arrays.take<int32_t>(stride);
  /** Numbers of visible keys, 0 once a page is attended to. */
  float* sizes = arrays.take<float>(stride);
  /** Bounds per head `[groupSize, stride]`, and the ranks of the largest ones. */
  float* bounds = arrays.take<float>(numHeads * stride);
  uint32_t* ranks = arrays.take<uint32_t>(stride);
  /** Only with `epsilon`: the pages in falling order, and terms of the rests. */
  int32_t *order = arrays.take<int32_t>(stride), *work = arrays.take<int32_t>(stride);
  float* terms = arrays.take<float>(stride);
  /** Per head, the largest bound, and upper bounds of the mass of the i-th and later pages relative to it. */
  float* tops = arrays.take<float>(numHeads);
  double* rests = arrays.take<double>(numHeads * stride);
};

/** What of a page a query at a position sees. */
struct Sight {
  int32_t numVisible;
  /** Whether a sink or a local position is among them. */
  bool isAttended;
};

Sight lookAt(const Operands& from, int32_t position, const int32_t* positions, int32_t count) {
  int32_t numVisible = 0;
  int32_t attended = 0;
  // without branches, so that the loop becomes vectors
  for (int32_t i = 0; i < count; i++) {
    const int32_t distance = position - positions[i];
    const int32_t isVisible = (positions[i] >= 0) & (distance >= from.minDistance) & (distance <= from.maxDistance);
    numVisible += isVisible;
    attended |= isVisible & ((positions[i] < from.sinks) | (distance < from.local));
  }
  return {numVisible, attended != 0};
}

/** Upper bounds of the logits of a page for each head of the group, and the largest of them; NaN wins. */
float boundPage(const Operands& from, const float* queries, int32_t box, float* bounds, size_t stride) {
  const float* low = from.keyMin + static_cast<size_t>(box) * from.headDim;
  const float* high = from.keyMax + static_cast<size_t>(box) * from.headDim;
  float top = -INFINITY;
  for (int32_t head = 0; head < from.groupSize; head++, queries += from.headDim) {
    auto sums = splatTo<LANES>(0);
    int32_t i = 0;
    for (; i + LANES <= from.headDim; i += LANES) {
      const auto query = loadFloats<LANES>(queries + i) * from.scale;
      sums += larger(query * loadFloats<LANES>(low + i), query * loadFloats<LANES>(high + i));
    }
    float bound = sumOf<LANES>(sums);
    for (; i < from.headDim; i++) {
      const float query = queries[i] * from.scale;
      bound += query * low[i] < query * high[i] ? query * high[i] : query * low[i];
    }
    if (from.softCap != 0) bound = from.softCap * tanhf(bound / from.softCap);
    bounds[head * stride] = bound;
    if (bound > top || bound != bound) top = bound;
  }
  return top;
}

/** The pages of one token and KV head. */
template <class FLASH> class PageAttention {
 public:
  PageAttention(const Scratch& scratch, FLASH& flash) : from_(scratch.from), tile_(flash.tile), scratch_(scratch), flash_(flash) {}

  void run() {
    const int32_t numAttended = openPages();
    const int32_t budget = from_.budget < 0 ? numOpen_ : least(from_.budget, numOpen_);
    if (from_.epsilon == 0) {
      selectLargest(scratch_.ranks, numOpen_, budget, [&](int32_t open) { visitPage(open); });
    } else {
      visitPages(budget);
    }
    const size_t at = static_cast<size_t>(tile_.firstToken) * from_.numKvHeads + tile_.kvHead;
    from_.pages[at] = numAttended + numVisited_;
    from_.pairs[at] = numKeys_;
    const float norm = largestNorm();
    for (int32_t lane = 0; lane < tile_.numLanes(); lane++) writeLane(lane, norm);
  }

 private:
  /** Attends to the pages that always are, and returns their number; other pages with visible keys become open. */
  int32_t openPages() {
    const int32_t position = from_.positions[tile_.firstToken];
    int32_t numAttended = 0;
    from_.forParts(tile_.sequence, tile_.context, from_.pageSize, [&](int32_t index, int32_t count) {
      const Sight sight = lookAt(from_, position, from_.slotPositions + index, count);
      if (sight.numVisible == 0) return;
      const int32_t box = static_cast<int32_t>(from_.summaryRow(index, from_.pageSize, tile_.kvHead));
      if (sight.isAttended || from_.boxCounts[box] != from_.pageSize) {
        attendPage({index, count}, sight.numVisible);
        numAttended++;
      } else {
        const float top = boundPage(from_, flash_.queryOf(0), box, scratch_.bounds + numOpen_, scratch_.stride);
        scratch_.ranks[numOpen_] = rankOf(top);
        scratch_.pages[numOpen_] = {index, count};
        scratch_.boxes[numOpen_] = box;
        scratch_.sizes[numOpen_++] = static_cast<float>(sight.numVisible);
      }
    });
    // no padding page counts
    for (int32_t open = numOpen_; open % LANES != 0; open++) scratch_.sizes[open] = 0;
    return numAttended;
  }

  /** Attends to an open page. */
  void visitPage(int32_t open) {
    attendPage(scratch_.pages[open], static_cast<int32_t>(scratch_.sizes[open]));
    scratch_.sizes[open] = 0;
    numVisited_++;
  }

  /** Attends to pages in falling order of their bounds, until all certificates are at most epsilon or the budget is used up. */
  void visitPages(int32_t budget) {
    sortFalling(scratch_.ranks, numOpen_, scratch_.order, scratch_.work);
    for (int32_t head = 0; head < tile_.numHeads(); head++) sumRests(head);
    while (numVisited_ < budget && !areCertified()) visitPage(scratch_.order[numVisited_]);
  }

  /** Upper bounds of the mass of the last pages in order, for a head. */
  void sumRests(int32_t head) {
    const float* bounds = scratch_.bounds + head * scratch_.stride;
    double* rests = scratch_.rests + head * scratch_.stride;
    const float top = largestBound(bounds);
    for (int32_t i = 0; i < numOpen_; i += LANES) storeFloats(scratch_.terms + i, termsOf(bounds, i, top));
    rests[numOpen_] = 0;
    for (int32_t i = numOpen_ - 1; i >= 0; i--) rests[i] = rests[i + 1] + scratch_.terms[scratch_.order[i]];
    scratch_.tops[head] = top;
  }

  bool areCertified() const {
    for (int32_t lane = 0; lane < tile_.numLanes(); lane++) {
      const double rest = scratch_.rests[lane * scratch_.stride + numVisited_];
      if (!(certificateOf(lane, rest, scratch_.tops[lane]) <= from_.epsilon)) return false;
    }
    return true;
  }

  /** Attends to the visible slots of a page, in runs: hidden ones may not be finite. */
  void attendPage(const Page& page, int32_t numVisible) {
    const auto [index, count] = page;
    numKeys_ += numVisible;
    if (numVisible == count) return attendRun(index, count);
    const int32_t position = from_.positions[tile_.firstToken];
    for (int32_t begin = 0, end; begin < count; begin = end + 1) {
      end = begin;
      while (end < count && from_.isVisible(position, from_.slotPositions[index + end])) end++;
      attendRun(index + begin, end - begin);
    }
  }

  void attendRun(int32_t index, int32_t count) {
    for (; count > 0; index += STEP_ROWS, count -= STEP_ROWS) {
      const int32_t step = least(count, STEP_ROWS);
      flash_.attendRows(from_.keys.at(index, tile_.kvHead), from_.values.at(index, tile_.kvHead), step, nullptr, Prefetch(), Prefetch());
    }
  }

  void writeLane(int32_t lane, float norm) const {
    const size_t row = flash_.rowOf(lane);
    const float* y = flash_.writeOutput(lane, from_.y);
    double squares = 0;
    for (int32_t i = 0; i < from_.valueDim; i++) squares += static_cast<double>(y[i]) * y[i];
    const double certificate = missingMass(lane);
    from_.certificate[row] = static_cast<float>(certificate);
    from_.errorBound[row] = static_cast<float>(certificate * (static_cast<double>(norm) + sqrt(squares)));
  }

  /** An upper bound of the softmax mass of the pages that were not attended to. */
  double missingMass(int32_t lane) const {
    if (numVisited_ == numOpen_) return 0;
    const float* bounds = scratch_.bounds + lane * scratch_.stride;
    const float top = largestBound(bounds);
    auto rest = splatTo<LANES>(0);
    for (int32_t i = 0; i < numOpen_ && top != -INFINITY; i += LANES) rest += termsOf(bounds, i, top);
    return certificateOf(lane, sumOf<LANES>(rest), top);
  }

  /** The share of the mass `rest * exp(top)` in all of the softmax of a lane. */
  double certificateOf(int32_t lane, double rest, float top) const {
    if (numVisited_ == numOpen_) return 0;
    const double mass = rest * exp(static_cast<double>(top) - flash_.maximumOf(lane));
    return mass == INFINITY ? 1 : mass / (mass + flash_.sumOf(lane));
  }

  /** Bounds of LANES pages, -Infinity for those that were attended to. */
  FloatVector<LANES> boundsAt(const float* bounds, int32_t first) const {
    return loadFloats<LANES>(scratch_.sizes + first) != 0.0f ? loadFloats<LANES>(bounds + first) : splatTo<LANES>(-INFINITY);
  }
  /** Numbers of keys times `exp(bound - top)`. */
  FloatVector<LANES> termsOf(const float* bounds, int32_t first, float top) const {
    return loadFloats<LANES>(scratch_.sizes + first) * expOf<LANES>(boundsAt(bounds, first) - top);
  }
  float largestBound(const float* bounds) const {
    auto tops = splatTo<LANES>(-INFINITY);
    for (int32_t i = 0; i < numOpen_; i += LANES) tops = larger(tops, boundsAt(bounds, i));
    return maximumOf<LANES>(tops);
  }

  /** The largest norm of a value in the pages that were not attended to. */
  float largestNorm() const {
    float norm = 0;
    for (int32_t i = 0; i < numOpen_; i++) {
      const float own = from_.valueNorms[scratch_.boxes[i]];
      if (scratch_.sizes[i] != 0 && own > norm) norm = own;
    }
    return norm;
  }

  const Operands& from_;
  const Tile& tile_;
  const Scratch& scratch_;
  FLASH& flash_;
  int32_t numOpen_ = 0;
  int32_t numVisited_ = 0;
  int32_t numKeys_ = 0;
};

void run(const Record& record, Threads& threads) {
  const Operands from(record);
  ScratchArrays arrays(record.localScratch());
  const Scratch scratch{from, arrays};
  forEachGroup(scratch.tile, from.groupSize, threads, [&](auto flash) { PageAttention(scratch, flash).run(); });
}

bool supports(const Record& from) {
  return hasRowTypes(from) && KvCache(from).groupSize <= MAX_LANES && !op::mass::isPresent(from) && !op::sinkLogits::isPresent(from);
}
}  // namespace

extern const Kernel pageTopkAttentionKernel = {supports, noScratch, scratchBytes<Operands, Scratch>, run};
}  // namespace WINNOW_NAMESPACE
