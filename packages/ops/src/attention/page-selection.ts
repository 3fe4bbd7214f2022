/**
 * Which pages a query attends to: the rules of `page-topk-attention`, for its reference and for hosts that select
 * before they read pages.
 */
import { selectTopK } from '../numerics/select-top-k.js';
import type { Attributes } from '../spec/op-spec.js';
import { bindCap } from './sparse-inputs.js';
import { sinksAndWindow, visibility } from './visibility.js';

/** The visible slots of the pages of a sequence for one query. */
export class SeenPages {
  /** Number of visible slots of each page. */
  readonly numSeen: Int32Array;
  readonly #isFixed: Uint8Array;
  readonly #isVisible: ReturnType<typeof visibility>;
  readonly #isAlwaysRead: ReturnType<typeof sinksAndWindow>;

  /** @param attributes of `page-topk-attention` */
  constructor(maxPages: number, attributes: Attributes) {
    this.numSeen = new Int32Array(maxPages);
    this.#isFixed = new Uint8Array(maxPages);
    this.#isVisible = visibility(attributes);
    this.#isAlwaysRead = sinksAndWindow(attributes);
  }

  /** @param slots positions that the slots of the page hold, negative ones for empty slots */
  add(page: number, queryPosition: number, slots: Int32Array): void {
    let [numSeen, isFixed] = [0, 0];
    for (let i = 0; i < slots.length; i++) {
      const position = slots[i];
      if (!this.#isVisible(queryPosition, position)) continue;
      numSeen++;
      if (this.#isAlwaysRead(queryPosition, position)) isFixed = 1;
    }
    this.numSeen[page] = numSeen;
    this.#isFixed[page] = isFixed;
  }

  /** Whether a query sees a position. */
  isVisible(queryPosition: number, position: number): boolean {
    return this.#isVisible(queryPosition, position);
  }

  /** Whether the page is always attended to because of its positions. */
  isFixed(page: number): boolean {
    return this.#isFixed[page] === 1;
  }
}

/** Sizes of the selection for one KV head. */
export interface PageSelectionShape {
  readonly maxPages: number;
  /** Slots of a page. */
  readonly pageSize: number;
  /** Query heads of the KV head. */
  readonly groupSize: number;
  readonly headDim: number;
}

/** The box of the keys of a page: rows of `boxCounts`, `keyMin` and `keyMax` of `block-box-append`. */
export interface PageBox {
  readonly count: number;
  readonly keyMin: ArrayLike<number>;
  readonly minBegin: number;
  readonly keyMax: ArrayLike<number>;
  readonly maxBegin: number;
}

/**
 * The selection of one query for one KV head. After `begin`, `add` every visible page; then `take` returns the best of
 * those that are not fixed, one by one.
 */
export class PageSelection {
  readonly #shape: PageSelectionShape;
  readonly #scale: number;
  readonly #cap: (logit: number) => number;
  readonly #budget: number;
  readonly #queries: Float64Array; // [groupSize, headDim], scaled
  readonly #pages: Int32Array;
  readonly #numSeen: Int32Array;
  readonly #bounds: Float64Array; // [maxPages, groupSize]
  readonly #largest: Float64Array; // [maxPages], of the group
  readonly #isTaken: Uint8Array;
  #numPages = 0;
  readonly #order: Int32Array; // of the candidates, best first, once `isSorted`
  #isSorted = false;
  #numTaken = 0;

  /** @param attributes of `page-topk-attention` */
  constructor(shape: PageSelectionShape, attributes: Attributes) {
    const { maxPages, groupSize, headDim } = shape;
    const budget = attributes['budget'] as number;
    this.#shape = shape;
    this.#scale = attributes['scale'] as number;
    this.#cap = bindCap(attributes);
    this.#budget = budget === -1 ? Infinity : budget;
    this.#queries = new Float64Array(groupSize * headDim);
    this.#pages = new Int32Array(maxPages);
    this.#numSeen = new Int32Array(maxPages);
    this.#bounds = new Float64Array(maxPages * groupSize);
    this.#largest = new Float64Array(maxPages);
    this.#isTaken = new Uint8Array(maxPages);
    this.#order = new Int32Array(maxPages);
  }

  /** @param queries of the group, `[groupSize, headDim]` at `begin` */
  begin(queries: Float32Array, begin: number): void {
    for (let i = 0; i < this.#queries.length; i++) this.#queries[i] = queries[begin + i] * this.#scale;
    this.#numPages = 0;
    this.#numTaken = 0;
    this.#isSorted = false;
  }

  /** Returns whether the page is fixed. Otherwise it is a candidate. */
  add(page: number, seen: SeenPages, box: PageBox): boolean {
    const { pageSize, groupSize, headDim } = this.#shape;
    if (seen.isFixed(page) || box.count !== pageSize) return true;
    const index = this.#numPages++;
    let largest = -Infinity;
    for (let g = 0; g < groupSize; g++) {
      const bound = this.#cap(boxBound(this.#queries, g * headDim, box, headDim));
      this.#bounds[index * groupSize + g] = bound;
      largest = Math.max(largest, bound);
    }
    this.#pages[index] = page;
    this.#numSeen[index] = seen.numSeen[page];
    this.#largest[index] = largest;
    this.#isTaken[index] = 0;
    return false;
  }

  /** Whether `take` has no more pages, because the budget is spent or none is left. */
  get isSpent(): boolean {
    return this.#numTaken >= Math.min(this.#budget, this.#numPages);
  }

  /** The best remaining candidate, ties by lower page. There must be one. */
  take(): number {
    if (!this.#isSorted) {
      const numBest = Math.min(this.#budget, this.#numPages);
      selectTopK(this.#largest, 0, this.#numPages, numBest, this.#order, this.#largest);
      this.#isSorted = true;
    }
    const index = this.#order[this.#numTaken++];
    this.#isTaken[index] = 1;
    return this.#pages[index];
  }

  /** The candidates that were not taken. */
  *rest(): Generator<number> {
    for (let i = 0; i < this.#numPages; i++) if (this.#isTaken[i] === 0) yield this.#pages[i];
  }

  /**
   * An upper bound on the share of softmax mass of query head `g` in the candidates that were not taken.
   * @param max the largest logit of the keys attended to, and `sum` the sum of their `exp(logit - max)`
   */
  missing(g: number, max: number, sum: number): number {
    const { groupSize } = this.#shape;
    let rest = 0;
    for (let i = 0; i < this.#numPages; i++) {
      if (this.#isTaken[i] === 0) rest += this.#numSeen[i] * Math.exp(this.#bounds[i * groupSize + g] - max);
    }
    return rest === 0 ? 0 : rest === Infinity ? 1 : rest / (rest + sum);
  }
}

/** An upper bound of the dot products of the query at `queries[begin...]` with the keys of a box. */
export function boxBound(
  queries: Float64Array,
  begin: number,
  { keyMin, minBegin, keyMax, maxBegin }: PageBox,
  headDim: number,
): number {
  let sum = 0;
  for (let i = 0; i < headDim; i++) {
    const x = queries[begin + i];
    sum += Math.max(x * keyMin[minBegin + i], x * keyMax[maxBegin + i]);
  }
  return sum;
}
