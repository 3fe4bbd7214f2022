/**
 * Greedy pair merging, the core of BPE and of SentencePiece BPE: of all adjacent pairs that may merge, the one with
 * the lowest rank merges first, the leftmost on ties. O(n log n) for n symbols: a heap of candidates over a linked
 * list.
 */

/** Which pairs of symbols merge, in which order, into what. */
export interface MergeRules {
  /** Rank of a pair, lower first, or -1 when it does not merge. Ranks are below 2^21. */
  rank(left: number, right: number): number;
  /** Symbol that a pair with a rank merges into. */
  merged(left: number, right: number): number;
}

/** Below this many symbols a linear scan for the best pair is faster than a heap. */
const SCAN_LIMIT = 24;
/** Scratch arrays larger than this are released after use. */
const KEEP_SCRATCH = 1 << 16;
const LEFT_RANGE = 2 ** 32;

/** Merges symbol lists in place; reuses scratch memory between calls. */
export class Merger {
  readonly #rules: MergeRules;
  // Scan: ranks[i] is the rank of symbols i and i+1.
  readonly #ranks = new Int32Array(SCAN_LIMIT);
  // Heap: the live symbols form a doubly linked list over their first positions; a removed symbol is -1.
  #previous = new Int32Array(0);
  #next = new Int32Array(0);
  // Candidates as rank * 2^32 + left position. An entry is stale when the pair at its position now has a different
  // rank.
  #heap = new Float64Array(0);
  #heapSize = 0;
  /** Number of merges so far, for complexity tests. */
  numMerges = 0;
  /** Number of candidates popped from heaps so far, for complexity tests. */
  numCandidates = 0;

  constructor(rules: MergeRules) {
    this.#rules = rules;
  }

  /** Merges the first `count` symbols of `symbols` and returns how many are left, compacted to the front. */
  merge(symbols: Int32Array, count: number): number {
    if (count < 2) return count;
    return count <= SCAN_LIMIT ? this.#mergeByScan(symbols, count) : this.#mergeByHeap(symbols, count);
  }

  #mergeByScan(symbols: Int32Array, count: number): number {
    const rules = this.#rules;
    const ranks = this.#ranks;
    for (let index = 0; index + 1 < count; index++) ranks[index] = rules.rank(symbols[index]!, symbols[index + 1]!);
    let live = count;
    for (;;) {
      let best = -1;
      let bestRank = 0x7fffffff;
      for (let index = 0; index + 1 < live; index++) {
        const rank = ranks[index]!;
        if (rank >= 0 && rank < bestRank) {
          best = index;
          bestRank = rank;
        }
      }
      if (best < 0) return live;
      this.numMerges++;
      symbols[best] = rules.merged(symbols[best]!, symbols[best + 1]!);
      live--;
      for (let index = best + 1; index < live; index++) {
        symbols[index] = symbols[index + 1]!;
        ranks[index] = ranks[index + 1]!;
      }
      if (best > 0) ranks[best - 1] = rules.rank(symbols[best - 1]!, symbols[best]!);
      if (best + 1 < live) ranks[best] = rules.rank(symbols[best]!, symbols[best + 1]!);
    }
  }

  #mergeByHeap(symbols: Int32Array, count: number): number {
    if (this.#next.length < count) {
      this.#next = new Int32Array(count);
      this.#previous = new Int32Array(count);
      // A merge removes one symbol and adds at most two candidates: count - 1 at first, 2 * (count - 1) later.
      this.#heap = new Float64Array(3 * count);
    }
    const rules = this.#rules;
    const next = this.#next;
    const previous = this.#previous;
    for (let index = 0; index < count; index++) {
      previous[index] = index - 1;
      next[index] = index + 1;
      if (index > 0) this.#offer(index - 1, rules.rank(symbols[index - 1]!, symbols[index]!));
    }
    while (this.#heapSize > 0) {
      const key = this.#pop();
      this.numCandidates++;
      const rank = Math.floor(key / LEFT_RANGE);
      const left = key - rank * LEFT_RANGE;
      const right = next[left]!;
      if (symbols[left]! < 0 || right >= count || rules.rank(symbols[left]!, symbols[right]!) !== rank) continue;
      this.numMerges++;
      const merged = rules.merged(symbols[left]!, symbols[right]!);
      symbols[left] = merged;
      symbols[right] = -1;
      const after = next[right]!;
      next[left] = after;
      if (after < count) {
        previous[after] = left;
        this.#offer(left, rules.rank(merged, symbols[after]!));
      }
      const before = previous[left]!;
      if (before >= 0) this.#offer(before, rules.rank(symbols[before]!, merged));
    }
    let live = 0;
    for (let index = 0; index < count; index = next[index]!) symbols[live++] = symbols[index]!;
    if (count > KEEP_SCRATCH) {
      this.#next = new Int32Array(0);
      this.#previous = new Int32Array(0);
      this.#heap = new Float64Array(0);
    }
    return live;
  }

  #offer(left: number, rank: number): void {
    if (rank < 0) return;
    const heap = this.#heap;
    const key = rank * LEFT_RANGE + left;
    let at = this.#heapSize++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (heap[parent]! <= key) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = key;
  }

  #pop(): number {
    const heap = this.#heap;
    const top = heap[0]!;
    const size = --this.#heapSize;
    const last = heap[size]!;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && heap[child + 1]! < heap[child]!) child++;
      if (heap[child]! >= last) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return top;
  }
}
