/**
 * Greedy pair merging, the core of BPE and of SentencePiece BPE: of all adjacent pairs that may merge, the one with
 * the lowest rank merges first, the leftmost on ties. O(n log n) for n symbols: a heap of candidates over a linked
 * list.
 */

import type { SliceCounter, Sliced } from '@winnow/tensor';

/** Which pairs of symbols merge, in which order, into what. */
export interface MergeRules {
  /** Rank of a pair, lower first, or -1 when it does not merge. Ranks are below 2^21. */
  rank(left: number, right: number): number;
  /** Symbol that a pair with a rank merges into. */
  merged(left: number, right: number): number;
}

/** Below this many symbols a linear scan for the best pair is faster than a heap. */
const SCAN_LIMIT = 24;
/** Candidates between two checks for the end of a slice. */
const STEP = 4096;
/** Number of symbols that can be moved in the same time. */
const COMPACT_STEP = 16 * STEP;
const LEFT_RANGE = 2 ** 32;

/** Merges symbol lists in place; reuses scratch memory between calls. */
export class Merger {
  readonly #rules: MergeRules;
  // Scan: ranks[i] is the rank of symbols i and i+1.
  readonly #ranks = new Int32Array(SCAN_LIMIT);
  #scratch = new Scratch(0);
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
    if (count <= SCAN_LIMIT) return this.#mergeByScan(symbols, count);
    if (this.#scratch.size < count) this.#scratch = new Scratch(count);
    const heap = new HeapMerge(this.#rules, symbols, count, this.#scratch);
    heap.offerPairs(1, count);
    heap.mergeBest(Infinity);
    this.#countSteps(heap);
    heap.compact(Infinity);
    return heap.numCompact;
  }

  /** The same in slices, with separate scratch memory. */
  *mergeSliced(symbols: Int32Array, count: number, work: SliceCounter): Sliced<number> {
    if (count <= SCAN_LIMIT) return this.merge(symbols, count);
    const heap = new HeapMerge(this.#rules, symbols, count, new Scratch(count));
    for (let begin = 1; begin < count; begin += STEP) {
      heap.offerPairs(begin, Math.min(begin + STEP, count));
      if (work.spend(STEP)) yield;
    }
    while (heap.mergeBest(STEP)) if (work.spend(STEP)) yield;
    this.#countSteps(heap);
    while (heap.compact(COMPACT_STEP)) if (work.spend(STEP)) yield;
    return heap.numCompact;
  }

  #countSteps({ numMerges, numCandidates }: HeapMerge): void {
    this.numMerges += numMerges;
    this.numCandidates += numCandidates;
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
}

/** Memory of one merge. */
class Scratch {
  readonly size: number;
  // The live symbols form a doubly linked list over their first positions.
  readonly previous: Int32Array;
  readonly next: Int32Array;
  // A merge removes one symbol and adds at most two candidates: count - 1 at first, 2 * (count - 1) later.
  readonly heap: Float64Array;

  constructor(size: number) {
    this.size = size;
    this.previous = new Int32Array(size);
    this.next = new Int32Array(size);
    this.heap = new Float64Array(3 * size);
  }
}

/** One merge of many symbols. A removed symbol is -1. */
class HeapMerge {
  numMerges = 0;
  numCandidates = 0;
  /** Symbols that `compact` has moved. */
  numCompact = 0;
  #compacted = 0;
  readonly #rules: MergeRules;
  readonly #symbols: Int32Array;
  readonly #count: number;
  readonly #previous: Int32Array;
  readonly #next: Int32Array;
  // Candidates as rank * 2^32 + left position. An entry is stale when the pair at its position now has a different
  // rank.
  readonly #heap: Float64Array;
  #heapSize = 0;

  constructor(rules: MergeRules, symbols: Int32Array, count: number, { previous, next, heap }: Scratch) {
    this.#rules = rules;
    this.#symbols = symbols;
    this.#count = count;
    this.#previous = previous;
    this.#next = next;
    this.#heap = heap;
    previous[0] = -1;
    next[0] = 1;
  }

  /** Adds the symbols of [begin, end), each with the pair that it ends. */
  offerPairs(begin: number, end: number): void {
    const symbols = this.#symbols;
    for (let index = begin; index < end; index++) {
      this.#previous[index] = index - 1;
      this.#next[index] = index + 1;
      this.#offer(index - 1, this.#rules.rank(symbols[index - 1]!, symbols[index]!));
    }
  }

  /** Returns false when no candidates are left, after at most `maxCandidates`. */
  mergeBest(maxCandidates: number): boolean {
    const rules = this.#rules;
    const symbols = this.#symbols;
    const next = this.#next;
    const previous = this.#previous;
    const count = this.#count;
    for (let remaining = maxCandidates; this.#heapSize > 0; remaining--) {
      if (remaining === 0) return true;
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
    return false;
  }

  /** Moves the symbols that are left to the front. Returns false when all were moved, after at most `maxSymbols`. */
  compact(maxSymbols: number): boolean {
    const symbols = this.#symbols;
    const end = this.numCompact + maxSymbols;
    for (; this.#compacted < this.#count; this.#compacted = this.#next[this.#compacted]!) {
      if (this.numCompact === end) return true;
      symbols[this.numCompact++] = symbols[this.#compacted]!;
    }
    return false;
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
