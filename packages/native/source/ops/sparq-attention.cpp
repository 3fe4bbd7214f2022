/**
 * SparQ attention; @winnow/ops defines it. Approximate logits come from the largest components of the queries: of the transposed
 * keys `[block, KV head, component, slot]` only these columns are read, a panel of slots at a time. Work items: (token, group of
 * heads that select their keys together). Records with masses are left to the interpreter.
 */
#include "../generated/operands/sparq-attention.h"
#include "../attention/select-largest.h"
#include "../attention/slot-list.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
namespace op = operands::sparq_attention;

/** Slots whose approximate logits are computed at once; heads are the rows of such a panel. */
using SlotPanel = Panel<LANES, 2>;
constexpr int32_t PANEL_SLOTS = SlotPanel::QUERIES;

struct Operands : KvCache {
  using KvCache::KvCache;
  /** Heads that select their keys together. */
  int32_t selectingHeads = op::attributes::grouped(record) ? groupSize : 1;
  int32_t rank = least(op::attributes::rank(record), headDim);
  int32_t topK = op::attributes::topK(record), local = op::attributes::local(record);
  bool hasMeanValue = op::attributes::meanValue(record), hasTemperature = op::attributes::temperature(record);
  bool hasColumns = op::columns::isPresent(record), hasMeans = op::valueMeans::isPresent(record);
  int32_t columnType = hasColumns ? op::columns::dtype(record) : winnow::F32;
  /** Slots of a part of a block, which has a mean. */
  int32_t partSize = hasMeans ? blockSize / op::valueMeans::numParts(record) : blockSize;
  const uint8_t* columns = op::columns::address(record);
  const float* valueMeans = op::valueMeans::address(record);
  const int32_t* meanCounts = op::meanCounts::address(record);
  float *y = op::y::address(record), *alpha = op::alpha::address(record);
  int32_t* pairs = op::pairs::address(record);
};

struct Scratch {
  const Operands& from;
  ScratchArrays& arrays;
  TileScratch tile{from, arrays};
  size_t numHeads = static_cast<size_t>(from.selectingHeads), numSlots = static_cast<size_t>(from.maxBlocks) * from.blockSize;
  size_t stride = (numSlots + LANES - 1) / LANES * LANES;
  SlotList visible = {arrays.take<int32_t>(numSlots), arrays.take<int32_t>(numSlots)};
  /** Indices in the list of visible slots, and in the cache. */
  int32_t *selected = arrays.take<int32_t>(numSlots), *slots = arrays.take<int32_t>(numSlots);
  /** Sums of the weights of all heads, and weights `[numHeads, stride]`. */
  float *totals = arrays.take<float>(stride), *weights = arrays.take<float>(numHeads * stride);
  uint32_t* ranks = arrays.take<uint32_t>(numSlots + from.headDim);
  /** Selected components: `[numHeads, rank]` for columns, else `[numHeads, headDim]` among zeros. */
  float* queries = arrays.take<float>(numHeads * from.headDim);
  int32_t* components = arrays.take<int32_t>(from.rank);
  /** A panel of columns `[rank, slots]` and of logits `[numHeads, slots]`. */
  float *columns = arrays.take<float>(static_cast<size_t>(from.rank) * PANEL_SLOTS), *logits = arrays.take<float>(numHeads * PANEL_SLOTS);
  double* mean = arrays.take<double>(from.valueDim);
};

/** The heads of one token that select their keys together. */
template <class FLASH> class SparqGroup {
 public:
  SparqGroup(const Scratch& scratch, FLASH& flash) : from_(scratch.from), tile_(flash.tile), scratch_(scratch), flash_(flash) {}

  void run() {
    const bool isDense = numVisible_ <= from_.topK;
    if (!isDense) chooseSlots();
    const int32_t numAttended = isDense ? numVisible_ : from_.topK;
    attendList(flash_, isDense ? scratch_.visible.slots : scratch_.slots, numAttended);
    const bool isBlended = from_.hasMeanValue && !isDense;
    if (isBlended) sumValues();
    for (int32_t lane = 0; lane < tile_.numLanes(); lane++) {
      float* y = flash_.writeOutput(lane, from_.y);
      const float share = isDense ? 1 : shareOf(lane);
      from_.alpha[flash_.rowOf(lane)] = share;
      if (isBlended) blend(y, share);
    }
    if (tile_.firstHead == 0) from_.pairs[tile_.firstToken] = numAttended;
  }

 private:
  /** Selects the slots with the largest sums of weights; the last `local` positions always. */
  void chooseSlots() {
    chooseComponents();
    for (int32_t head = 0; head < tile_.numHeads(); head++) reduceQuery(head);
    if (from_.hasColumns) scoreColumns();
    else scoreKeys();
    memset(scratch_.totals, 0, scratch_.stride * sizeof(float));
    for (int32_t head = 0; head < tile_.numHeads(); head++) addWeights(scratch_.weights + head * scratch_.stride);
    const int32_t oldest = from_.positions[tile_.firstToken] - from_.local;
    for (int32_t i = 0; i < numVisible_; i++) {
      scratch_.ranks[i] = rankOf(scratch_.visible.positions[i] > oldest ? INFINITY : scratch_.totals[i]);
    }
    int32_t count = 0;
    selectLargest(scratch_.ranks, numVisible_, from_.topK, [&](int32_t i) {
      scratch_.selected[count] = i;
      scratch_.slots[count++] = scratch_.visible.slots[i];
    });
  }

  /** Selects the components with the largest sums of magnitudes over the queries. */
  void chooseComponents() {
    for (int32_t i = 0; i < from_.headDim; i++) {
      float sum = 0;
      for (int32_t head = 0; head < tile_.numHeads(); head++) sum += fabsf(flash_.queryOf(head)[i]);
      scratch_.ranks[i] = rankOf(sum);
    }
    int32_t count = 0;
    selectLargest(scratch_.ranks, from_.headDim, from_.rank, [&](int32_t i) { scratch_.components[count++] = i; });
  }

  /** Reduces a query to the selected components, divided by the temperature. */
  void reduceQuery(int32_t head) {
    const float* query = flash_.queryOf(head);
    float* to = scratch_.queries + static_cast<size_t>(head) * (from_.hasColumns ? from_.rank : from_.headDim);
    float all = 0, kept = 0;
    for (int32_t i = 0; i < from_.headDim; i++) all += fabsf(query[i]);
    for (int32_t c = 0; c < from_.rank; c++) kept += fabsf(query[scratch_.components[c]]);
    const float factor = from_.hasTemperature && kept != 0 ? sqrtf(all / kept) : 1;
    if (!from_.hasColumns) memset(to, 0, static_cast<size_t>(from_.headDim) * sizeof(float));
    for (int32_t c = 0; c < from_.rank; c++) {
      const int32_t component = scratch_.components[c];
      if (from_.hasColumns) to[c] = query[component] * factor * from_.scale;
      else to[component] = query[component] * factor;
    }
  }

  /** Approximate logits from the selected columns. */
  void scoreColumns() {
    const int32_t* slots = scratch_.visible.slots;
    for (int32_t begin = 0, end; begin < numVisible_; begin = end) {
      const int32_t limit = least(numVisible_, begin + PANEL_SLOTS);
      for (end = begin; end < limit;) {
        const int32_t run = runOf(from_, slots + end, limit - end);
        readColumns(slots[end], run, scratch_.columns + end - begin);
        end += run;
      }
      gemmRows<SlotPanel, false>(scratch_.logits, scratch_.queries, tile_.numHeads(), from_.rank, scratch_.columns, from_.rank, nullptr,
                                 Prefetch());
      if (from_.softCap != 0) capRows<SlotPanel>(scratch_.logits, tile_.numHeads(), from_.softCap);
      for (int32_t head = 0; head < tile_.numHeads(); head++) {
        memcpy(scratch_.weights + head * scratch_.stride + begin, scratch_.logits + head * PANEL_SLOTS,
               static_cast<size_t>(end - begin) * sizeof(float));
      }
    }
  }

  /** Reads the selected columns of consecutive slots of a block to a panel. */
  void readColumns(int32_t index, int32_t count, float* to) {
    const size_t first = static_cast<size_t>(index / from_.blockSize * from_.numKvHeads + tile_.kvHead) * from_.headDim;
    const size_t bytes = rowBytesOf(from_.columnType, 1);
    for (int32_t c = 0; c < from_.rank; c++, to += PANEL_SLOTS) {
      const size_t at = (first + scratch_.components[c]) * from_.blockSize + index % from_.blockSize;
      copyRows(from_.columnType, from_.columns + at * bytes, to, count);
    }
  }

  /** Approximate logits from whole keys. */
  void scoreKeys() {
    flash_.loadLanes(scratch_.queries);
    for (int32_t begin = 0; begin < numVisible_; begin += STEP_ROWS) {
      const int32_t count = least(STEP_ROWS, numVisible_ - begin);
      const int32_t* slots = scratch_.visible.slots + begin;
      const StoredRows stored = gatherRows(from_, from_.keys, tile_.kvHead, slots, count, scratch_.tile.keys);
      const StoredRows keys = flash_.readable(stored, count, from_.headDim, scratch_.tile.keys);
      for (int32_t first = 0; first < tile_.numLanes(); first += FLASH::PANEL) {
        flash_.scoreRows(first, keys, count, Prefetch());
        const int32_t end = least(first + FLASH::PANEL, tile_.numLanes());
        for (int32_t lane = first; lane < end; lane++) {
          float* to = scratch_.weights + lane * scratch_.stride + begin;
          const float* logits = scratch_.tile.logits + lane - first;
          for (int32_t i = 0; i < count; i++) to[i] = logits[i * FLASH::PANEL];
        }
      }
    }
    flash_.loadQueries(from_.queries);
  }

  /** Softmax of the logits of a head, added to the totals. */
  void addWeights(float* own) {
    const int32_t count = (numVisible_ + LANES - 1) / LANES;
    for (int32_t i = numVisible_; i < count * LANES; i++) own[i] = -INFINITY;
    const float top = maximumOf<LANES>(columnMax<Panel<LANES, 1>>(own, count, splatTo<LANES>(-INFINITY)));
    const auto shift = splatTo<LANES>(top == -INFINITY ? 0 : top);
    auto sums = splatTo<LANES>(0);
    for (int32_t i = 0; i < count * LANES; i += LANES) {
      const auto weight = expOf<LANES>(loadFloats<LANES>(own + i) - shift);
      storeFloats(own + i, weight);
      sums += weight;
    }
    const auto factor = splatTo<LANES>(1 / sumOf<LANES>(sums));
    for (int32_t i = 0; i < count * LANES; i += LANES) {
      const auto weight = loadFloats<LANES>(own + i) * factor;
      storeFloats(own + i, weight);
      storeFloats(scratch_.totals + i, loadFloats<LANES>(scratch_.totals + i) + weight);
    }
  }

  /** Approximate weight of the selected slots for a head. */
  float shareOf(int32_t head) const {
    const float* own = scratch_.weights + head * scratch_.stride;
    float share = 0;
    for (int32_t i = 0; i < from_.topK; i++) share += own[scratch_.selected[i]];
    return share > 1 ? 1 : share;
  }

  /** `y = share * y + (1 - share) * mean` */
  void blend(float* y, float share) const {
    for (int32_t i = 0; i < from_.valueDim; i++) { y[i] = share * y[i] + (1 - share) * static_cast<float>(scratch_.mean[i] / numVisible_); }
  }

  /** Sums the values of all visible keys, by the means of parts of which all keys are visible. */
  void sumValues() {
    const int32_t position = from_.positions[tile_.firstToken];
    for (int32_t i = 0; i < from_.valueDim; i++) scratch_.mean[i] = 0;
    from_.forParts(tile_.sequence, tile_.context, from_.partSize, [&](int32_t index, int32_t count) {
      const int32_t numVisible = from_.countVisible(position, index, count);
      if (numVisible == 0 || addMean(index, count, numVisible)) return;
      for (int32_t i = index; i < index + count; i++) {
        if (!from_.isVisible(position, from_.slotPositions[i])) continue;
        addValue(from_.values.floatsAt(i, tile_.kvHead, 1, scratch_.tile.values), 1);
      }
    });
  }

  /** Adds the mean of a part unless it is out of date or does not stand for visible keys alone. */
  bool addMean(int32_t index, int32_t count, int32_t numVisible) {
    if (!from_.hasMeans || numVisible < count || count < from_.partSize) return false;
    const size_t summary = from_.summaryRow(index, from_.partSize, tile_.kvHead);
    if (from_.meanCounts[summary] != from_.partSize) return false;
    addValue(from_.valueMeans + summary * from_.valueDim, from_.partSize);
    return true;
  }

  void addValue(const float* value, double count) {
    for (int32_t i = 0; i < from_.valueDim; i++) scratch_.mean[i] += count * value[i];
  }

  const Operands& from_;
  const Tile& tile_;
  const Scratch& scratch_;
  FLASH& flash_;
  int32_t numVisible_ = scratch_.visible.count;
};

void run(const Record& record, Threads& threads) {
  const Operands from(record);
  ScratchArrays arrays(record.localScratch());
  Scratch scratch{from, arrays};
  int32_t listed = -1;
  forEachGroup(scratch.tile, from.selectingHeads, threads, [&](auto flash) {
    if (flash.tile.firstToken != listed) listVisible(from, flash.tile, scratch.visible);
    listed = flash.tile.firstToken;
    SparqGroup(scratch, flash).run();
  });
}

bool supports(const Record& record) {
  return hasRowTypes(record) && KvCache(record).groupSize <= MAX_LANES && !op::mass::isPresent(record);
}
}  // namespace

extern const Kernel sparqAttentionKernel = {supports, noScratch, scratchBytes<Operands, Scratch>, run};
}  // namespace WINNOW_NAMESPACE
