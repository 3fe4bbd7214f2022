/**
 * Attention to chunks and to a memory of heavy hitters (H2O); @winnow/ops defines the state. Each tile of queries attends to its chunk
 * and to the memory in two softmaxes, whose weights are summed as scores of the keys; their states are merged when the output is
 * written. Work items: first (sequence, KV head) to copy the states; then, chunk by chunk, (sequence, KV head, some tokens), each
 * with its own sums of weights, and (sequence, KV head) to add these sums in a fixed order and to select the next memory.
 * Logical slot `j` of a sequence holds position `j` or is empty. Records with masses are left to the interpreter.
 */
#include "../generated/operands/h2o-attention.h"
#include "../attention/flash-tile.h"
#include "../attention/select-largest.h"
#include "../runtime/kernel.h"

namespace WINNOW_NAMESPACE {
namespace {
namespace op = operands::h2o_attention;

/** Approximate number of tokens in a work item; every item gathers the keys of its chunk. */
constexpr int32_t ITEM_TOKENS = 64;

struct Operands : KvCache {
  using KvCache::KvCache;
  int32_t chunk = op::attributes::chunk(record), capacity = op::memory::memorySize(record);
  int32_t local = op::attributes::local(record), heavy = op::attributes::heavy(record), sinks = op::attributes::sinks(record);
  /** Tokens of a work item, and the maximum number of items for a chunk and a KV head. */
  int32_t itemTokens = (ITEM_TOKENS + tokenTileOf(*this) - 1) / tokenTileOf(*this) * tokenTileOf(*this);
  int32_t numParts = (least(numTokens, chunk) + itemTokens - 1) / itemTokens;
  const int32_t *stateFrom = op::stateFrom::address(record), *stateTo = op::stateTo::address(record);
  int32_t *memory = op::memory::address(record), *progress = op::progress::address(record), *pairs = op::pairs::address(record);
  float *memoryScores = op::memoryScores::address(record), *chunkScores = op::chunkScores::address(record);
  float* y = op::y::address(record);

  /** Numbers in the sums of weights of a work item: of the chunk, then of the memory. */
  size_t numSums() const { return static_cast<size_t>(chunk) + capacity; }
};

/** The tokens of a step that belong to one sequence, and of these, `[begin, end)` in one chunk. */
struct Piece {
  int32_t begin, end, runEnd, sequence;

  bool isLast() const { return end == runEnd; }
};

/** Finds chunk `number` of run `run`; false if there is none. */
bool findPiece(const Operands& from, int32_t run, int32_t number, Piece& piece) {
  piece.runEnd = 0;
  for (int32_t i = 0; i <= run; i++) {
    piece.end = piece.runEnd;
    if (piece.end == from.numTokens) return false;
    piece.sequence = from.sequences[piece.end];
    while (piece.runEnd < from.numTokens && from.sequences[piece.runEnd] == piece.sequence) piece.runEnd++;
  }
  for (int32_t i = 0; i <= number; i++) {
    piece.begin = piece.end;
    if (piece.begin == piece.runEnd) return false;
    const int32_t index = from.positions[piece.begin] / from.chunk;
    while (piece.end < piece.runEnd && from.positions[piece.end] / from.chunk == index) piece.end++;
  }
  return true;
}

struct Scratch {
  const Operands& from;
  ScratchArrays& arrays;
  /** Keys and values of the chunk and of the memory, and the states of the two softmaxes. */
  TileScratch chunk{from, arrays, static_cast<size_t>(from.chunk)}, memory{from, arrays, static_cast<size_t>(from.capacity)};
  Visibility *seenChunk = arrays.take<Visibility>(from.chunk), *seenMemory = arrays.take<Visibility>(from.capacity);
  float *factors = arrays.take<float>(2 * LANES), *output = arrays.take<float>(from.valueDim);
  /** Of candidates for the memory. */
  uint32_t* ranks = arrays.take<uint32_t>(from.numSums());
  bool* isRetained = arrays.take<bool>(from.numSums());
};

/** The state of a sequence and a KV head. */
class HeavyState {
 public:
  HeavyState(const Scratch& scratch, size_t row) : scratch_(scratch), row_(row) {}

  int32_t count() const { return progress_[1]; }
  int32_t positionAt(int32_t entry) const { return memory_[entry]; }

  void clear() {
    progress_[0] = 0;
    progress_[1] = 0;
    memset(sums_, 0, static_cast<size_t>(from_.chunk) * 4);
  }

  void copy(const HeavyState& other) {
    memmove(progress_, other.progress_, 8);
    memmove(memory_, other.memory_, static_cast<size_t>(other.count()) * 4);
    memmove(scores_, other.scores_, static_cast<size_t>(other.count()) * 4);
    memmove(sums_, other.sums_, static_cast<size_t>(from_.chunk) * 4);
  }

  /** Adds the sums of weights of a work item. */
  void add(const float* weights) {
    for (int32_t i = 0; i < from_.chunk; i++) sums_[i] += weights[i];
    for (int32_t i = 0; i < count(); i++) scores_[i] += weights[from_.chunk + i];
  }

  /** All positions below `position` were seen: closes the chunks that ended. */
  void reach(int32_t position) {
    for (int32_t index = progress_[0] / from_.chunk; index < position / from_.chunk; index++) closeChunk(index * from_.chunk);
    progress_[0] = position;
  }

  /** Clears the unused entries of the memory. */
  void finish() {
    for (int32_t i = count(); i < from_.capacity; i++) {
      memory_[i] = -1;
      scores_[i] = 0;
    }
  }

 private:
  /** Selects the next memory from the memory and the chunk that begins at position `first`. */
  void closeChunk(int32_t first) {
    const int32_t numOld = count(), numCandidates = numOld + from_.chunk;
    const auto positionOf = [&](int32_t i) { return i < numOld ? memory_[i] : first + i - numOld; };
    const auto scoreOf = [&](int32_t i) { return i < numOld ? scores_[i] : sums_[i - numOld]; };
    int32_t numRest = 0;
    for (int32_t i = 0; i < numCandidates; i++) {
      const bool isRetained = positionOf(i) < from_.sinks || positionOf(i) >= first + from_.chunk - from_.local;
      scratch_.isRetained[i] = isRetained;
      scratch_.ranks[i] = isRetained ? 0 : rankOf(scoreOf(i));
      numRest += isRetained ? 0 : 1;
    }
    selectLargest(scratch_.ranks, numCandidates, least(from_.heavy, numRest), [&](int32_t i) { scratch_.isRetained[i] = true; });
    int32_t numRetained = 0;
    for (int32_t i = 0; i < numCandidates; i++) {
      if (!scratch_.isRetained[i]) continue;
      // no entry is overwritten before it is read
      const int32_t position = positionOf(i);
      const float score = scoreOf(i);
      memory_[numRetained] = position;
      scores_[numRetained++] = score;
    }
    progress_[1] = numRetained;
    memset(sums_, 0, static_cast<size_t>(from_.chunk) * 4);
  }

  const Scratch& scratch_;
  size_t row_;
  const Operands& from_ = scratch_.from;
  int32_t *memory_ = from_.memory + row_ * from_.capacity, *progress_ = from_.progress + row_ * 2;
  float *scores_ = from_.memoryScores + row_ * from_.capacity, *sums_ = from_.chunkScores + row_ * from_.chunk;
};

/** Attention of some tokens of a piece and one KV head to a chunk and the memory. */
class ChunkAttention {
 public:
  /** @param weights sums of weights of the work item, which become those of these tokens */
  ChunkAttention(const Scratch& scratch, const HeavyState& state, float* weights)
      : from_(scratch.from), scratch_(scratch), state_(state), weights_(weights) {}

  void run(const Piece& piece, int32_t begin, int32_t end, int32_t kvHead) {
    first_ = from_.positions[begin] / from_.chunk * from_.chunk;
    int32_t last = 0;
    for (int32_t t = begin; t < end; t++) last = from_.positions[t] > last ? from_.positions[t] : last;
    for (int32_t i = 0; first_ + i <= last; i++) {
      scratch_.seenChunk[i] = gatherPosition(piece.sequence, first_ + i, kvHead, scratch_.chunk, i);
    }
    for (int32_t i = 0; i < state_.count(); i++) {
      scratch_.seenMemory[i] = gatherPosition(piece.sequence, state_.positionAt(i), kvHead, scratch_.memory, i);
    }
    memset(weights_, 0, from_.numSums() * sizeof(float));
    forTiles(scratch_.chunk, begin, end, kvHead, 0, false, [&](auto flash) { attendTile(flash); });
  }

 private:
  /** Gathers the key and value of a position, zeros if the cache does not hold them; returns who sees them. */
  Visibility gatherPosition(int32_t sequence, int32_t position, int32_t kvHead, const TileScratch& to, int32_t row) const {
    float *key = to.keys + row * to.headDim, *value = to.values + row * to.valueDim;
    const int32_t index = position < from_.contextLengths[sequence] ? from_.slotIndex(sequence, position) : -1;
    if (index < 0 || from_.slotPositions[index] != position) {
      memset(key, 0, to.headDim * sizeof(float));
      memset(value, 0, to.valueDim * sizeof(float));
      return HIDDEN;
    }
    from_.keys.copy(index, kvHead, 1, key);
    from_.values.copy(index, kvHead, 1, value);
    return {position, 0, from_.maxDistance, 0};
  }

  template <class FLASH> void attendTile(FLASH& inChunk) {
    const Tile& tile = inChunk.tile;
    FLASH inMemory(tile, scratch_.memory);
    attendRows(inChunk, scratch_.seenChunk, inChunk.highestPosition() + 1 - first_, weights_);
    attendRows(inMemory, scratch_.seenMemory, state_.count(), weights_ + from_.chunk);
    for (int32_t lane = 0; lane < tile.numLanes(); lane++) mergeLane(inChunk, inMemory, lane);
    for (int32_t t = tile.firstToken; t < tile.lastToken && tile.firstHead == tile.kvHead * from_.groupSize; t++) {
      const int32_t position = from_.positions[t];
      const int32_t numChunk = countSeen(scratch_.seenChunk, position + 1 - first_, position);
      from_.pairs[t * from_.numKvHeads + tile.kvHead] = numChunk + countSeen(scratch_.seenMemory, state_.count(), position);
    }
  }

  /** Attends to the first `count` rows of the chunk or the memory, and adds the weights to their sums. */
  template <class FLASH> void attendRows(FLASH& flash, const Visibility* seen, int32_t count, float* sums) {
    const Tile& tile = flash.tile;
    const TileScratch& rows = flash.scratch;
    const StoredRows keys = floatRows(rows.keys, from_.headDim), values = floatRows(rows.values, from_.valueDim);
    for (int32_t first = 0; count > 0 && first < tile.numLanes(); first += FLASH::PANEL) {
      flash.attendPanel(first, keys, values, count, seen, Prefetch(), Prefetch());
      // lanes of padding repeat a query and count nothing
      for (int32_t lane = 0; lane < FLASH::PANEL; lane++) {
        const float sum = flash.sumOf(first + lane);
        scratch_.factors[lane] = first + lane >= tile.numLanes() || sum == 0 ? 0 : 1 / sum;
      }
      const float* weights = rows.logits;
      for (int32_t i = 0; i < count; i++, weights += FLASH::PANEL) { sums[i] += flash.dotLanes(weights, scratch_.factors); }
    }
  }

  /** Writes the output of one softmax over both chunk and memory. */
  template <class FLASH> void mergeLane(const FLASH& inChunk, const FLASH& inMemory, int32_t lane) const {
    const float top = fmaxf(inChunk.maximumOf(lane), inMemory.maximumOf(lane));
    const float ofChunk = factorOf(inChunk.maximumOf(lane), top), ofMemory = factorOf(inMemory.maximumOf(lane), top);
    const float sum = inChunk.sumOf(lane) * ofChunk + inMemory.sumOf(lane) * ofMemory;
    const float inverse = sum == 0 ? 0 : 1 / sum;
    float* y = from_.y + inChunk.rowOf(lane) * from_.valueDim;
    inChunk.writeLane(lane, ofChunk * inverse, y);
    inMemory.writeLane(lane, ofMemory * inverse, scratch_.output);
    for (int32_t i = 0; i < from_.valueDim; i++) y[i] += scratch_.output[i];
  }

  static float factorOf(float maximum, float top) { return maximum == -INFINITY ? 0 : expf(maximum - top); }

  static int32_t countSeen(const Visibility* rows, int32_t count, int32_t position) {
    int32_t numSeen = 0;
    for (int32_t i = 0; i < count; i++) numSeen += rows[i].isSeenFrom(position) ? 1 : 0;
    return numSeen;
  }

  const Operands& from_;
  const Scratch& scratch_;
  const HeavyState& state_;
  float* weights_;
  /** The first position of the chunk. */
  int32_t first_ = 0;
};

class H2o {
 public:
  explicit H2o(const Record& record) : from_(record) {}

  void run(Threads& threads) {
    Piece piece;
    int32_t numRuns = 0, numPieces = 0;
    for (; findPiece(from_, numRuns, 0, piece); numRuns++) {
      while (findPiece(from_, numRuns, numPieces, piece)) numPieces++;
    }
    const int32_t numStates = numRuns * from_.numKvHeads;
    for (int32_t state = threads.nextItems(1); state < numStates; state = threads.nextItems(1)) begin(state);
    for (int32_t number = 0; number < numPieces; number++) {
      if (!threads.barrier()) return;
      const int32_t numItems = numStates * from_.numParts;
      for (int32_t item = threads.nextItems(1); item < numItems; item = threads.nextItems(1)) attend(item, number);
      if (!threads.barrier()) return;
      for (int32_t state = threads.nextItems(1); state < numStates; state = threads.nextItems(1)) end(state, number);
    }
  }

 private:
  HeavyState stateAt(int32_t row, int32_t state) const {
    return HeavyState(scratch_, static_cast<size_t>(row) * from_.numKvHeads + state % from_.numKvHeads);
  }
  float* sumsOf(int32_t item) const { return sums_ + static_cast<size_t>(item) * from_.numSums(); }

  /** Copies the state of a sequence to its target row, or clears it. */
  void begin(int32_t state) {
    Piece piece;
    findPiece(from_, state / from_.numKvHeads, 0, piece);
    const int32_t row = from_.stateFrom[piece.sequence], position = from_.positions[piece.begin];
    HeavyState to = stateAt(from_.stateTo[piece.sequence], state);
    if (row < 0 || position == 0) to.clear();
    else to.copy(stateAt(row, state));
    to.reach(position);
  }

  /** Runs attention for some tokens of one piece. */
  void attend(int32_t item, int32_t number) {
    const int32_t state = item / from_.numParts;
    Piece piece;
    if (!findPiece(from_, state / from_.numKvHeads, number, piece)) return;
    const int32_t begin = piece.begin + item % from_.numParts * from_.itemTokens;
    if (begin >= piece.end) return;
    const HeavyState heavy = stateAt(from_.stateTo[piece.sequence], state);
    ChunkAttention attention(scratch_, heavy, sumsOf(item));
    attention.run(piece, begin, least(piece.end, begin + from_.itemTokens), state % from_.numKvHeads);
  }

  /** Adds the sums of weights of all work items of a piece, and closes the chunk if it is complete. */
  void end(int32_t state, int32_t number) {
    Piece piece;
    if (!findPiece(from_, state / from_.numKvHeads, number, piece)) return;
    HeavyState heavy = stateAt(from_.stateTo[piece.sequence], state);
    int32_t item = state * from_.numParts;
    for (int32_t begin = piece.begin; begin < piece.end; begin += from_.itemTokens) heavy.add(sumsOf(item++));
    heavy.reach(from_.positions[piece.end - 1] + 1);
    if (piece.isLast()) heavy.finish();
    else heavy.reach(from_.positions[piece.end]);
  }

  Operands from_;
  ScratchArrays arrays_{from_.record.localScratch()};
  Scratch scratch_{from_, arrays_};
  float* sums_ = reinterpret_cast<float*>(from_.record.sharedScratch());
};

void run(const Record& record, Threads& threads) { H2o(record).run(threads); }

bool supports(const Record& record) { return hasRowTypes(record) && !op::mass::isPresent(record); }

/** Sums of weights of all work items. */
uint64_t sharedBytes(const Record& record) {
  const Operands from(record);
  const int32_t numStates = least(from.numTokens, op::contextLengths::numSequences(record)) * from.numKvHeads;
  return static_cast<uint64_t>(numStates) * from.numParts * from.numSums() * sizeof(float);
}
}  // namespace

extern const Kernel h2oAttentionKernel = {supports, sharedBytes, scratchBytes<Operands, Scratch>, run};
}  // namespace WINNOW_NAMESPACE
