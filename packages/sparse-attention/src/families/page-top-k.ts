/**
 * Pages by an upper bound of their logits, with a certificate: after every page, what the unvisited ones could hold at
 * most. Selection as in Quest (arXiv:2406.10774); the bound per step and the stop rule are Winnow's.
 */
import type { Tensor3 } from '@winnow/tensor';
import { checkAttend, familyShape, reportVisit } from '../core/family.js';
import type { AttendOptions, AttentionFamily, FamilyOptions, FamilyShape } from '../core/family.js';
import { GroupAttend } from '../core/group-attend.js';
import { PageBoxes, pagesPerSuper } from '../core/page-boxes.js';
import type { KvRows } from '../core/rows.js';
import type { PageTopKPolicy } from '../policy/policy-types.js';
import { PageHeap } from './page-heap.js';

/** Options of `PageTopKAttention`. */
export interface PageTopKOptions extends FamilyOptions {
  readonly policy: PageTopKPolicy;
  /** Boxes of 16 pages first. Default: from 64 pages on. */
  readonly twoLevels?: boolean | undefined;
}

/** What one query cost and how exact it is, per KV head or query head. */
export interface PageTopKReport {
  /** Pages chosen besides those that are always exact, per KV head. */
  readonly pagesVisited: Int32Array;
  /** Pages that could be chosen. */
  numPages: number;
  /** Tokens attended to, per KV head. */
  readonly tokensVisited: Int32Array;
  /** Tokens attended to by tokens in the cache, over all KV heads. */
  density: number;
  /** Upper bound of the softmax mass that is missing, per query head. */
  readonly certificate: Float64Array;
  /** Upper bound of the norm of the output error, per query head. */
  readonly errorBound: Float64Array;
}

/** Sums are added anew instead of updated when they have lost this much: subtraction then costs at most 1e-10 of them. */
const refreshBelow = 1e-6;

/**
 * Page selection per KV head for all its query heads. In exact arithmetic the true missing mass never exceeds the
 * certificate; in f64, as here, by no more than 1e-10 of it.
 */
export class PageTopKAttention implements AttentionFamily {
  readonly policy: PageTopKPolicy;
  readonly shape: FamilyShape;
  readonly boxes: PageBoxes;
  /** About the last query. */
  readonly report: PageTopKReport;
  pairs = 0;
  readonly #kv: KvRows;
  readonly #twoLevels: boolean | undefined;
  readonly #group: GroupAttend;
  readonly #heap: PageHeap;
  readonly #reference: Float64Array;
  readonly #remaining: Float64Array;
  readonly #lastFresh: Float64Array;
  #tokens = new Int32Array(0);
  #numTokens = 0;
  #exactEnd = 0; // candidates are the pages of [#exactEnd, #tailBegin)
  #tailBegin = 0;

  constructor(options: PageTopKOptions) {
    this.shape = familyShape(options);
    const { groupSize, headDim, valueDim, numKvHeads, numHeads } = this.shape;
    this.policy = options.policy;
    this.#kv = options.kv;
    this.#twoLevels = options.twoLevels;
    this.boxes = new PageBoxes(options.kv, options.policy.pageSize);
    this.#group = new GroupAttend(groupSize, headDim, valueDim);
    this.#heap = new PageHeap(groupSize);
    this.#reference = new Float64Array(groupSize);
    this.#remaining = new Float64Array(groupSize);
    this.#lastFresh = new Float64Array(groupSize);
    this.report = {
      pagesVisited: new Int32Array(numKvHeads),
      numPages: 0,
      tokensVisited: new Int32Array(numKvHeads),
      density: 0,
      certificate: new Float64Array(numHeads),
      errorBound: new Float64Array(numHeads),
    };
    this.appended();
  }

  appended(): void {
    this.boxes.append();
  }

  truncated(length: number): void {
    this.boxes.truncate(length);
  }

  attend(q: Tensor3, begin: number, out: Tensor3, options: AttendOptions = {}): void {
    checkAttend(this.shape, this.#kv, q, begin, out, options);
    const { numKvHeads } = this.shape;
    const { sinks, window, pageSize } = this.policy;
    for (let t = 0; t < q.seqLen; t++) {
      const length = begin + t + 1;
      const numFull = Math.floor(length / pageSize) * pageSize;
      this.#exactEnd = Math.min(sinks, length);
      this.#tailBegin = Math.max(this.#exactEnd, Math.min(numFull, length - window));
      let visited = 0;
      for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
        this.#attendGroup(q, t, length, kvHead, out, options);
        visited += this.#numTokens;
      }
      this.report.density = visited / (numKvHeads * length);
    }
  }

  #attendGroup(q: Tensor3, t: number, length: number, kvHead: number, out: Tensor3, options: AttendOptions): void {
    const { numHeads, numKvHeads, groupSize, headDim, valueDim, scale } = this.shape;
    const { mass, visits, states } = options;
    const { budget, epsilon, pageSize } = this.policy;
    const { report } = this;
    const group = this.#group;
    const heap = this.#heap;
    const row = t * numHeads + kvHead * groupSize;
    if (this.#tokens.length < length) this.#tokens = new Int32Array(2 * length);
    this.#numTokens = 0;
    group.begin(q.data, row * headDim, scale, mass !== undefined);
    this.#visit(kvHead, 0, this.#exactEnd);
    this.#visit(kvHead, this.#tailBegin, length);
    const numPages = this.#fillHeap(kvHead);
    this.#refresh();
    let numVisited = 0;
    while (heap.size > 0 && (epsilon === 0 || this.#largestCertificate() > epsilon)) {
      if (budget !== 'all' && numVisited >= budget) break;
      const item = heap.pop();
      const code = heap.codes[item];
      if (epsilon > 0) this.#forget(item);
      if (code < 0) {
        for (let p = ~code * pagesPerSuper; p < (~code + 1) * pagesPerSuper; p++) this.#pushPage(p, kvHead);
        this.#refresh();
        continue;
      }
      this.#visit(kvHead, Math.max(this.#exactEnd, code * pageSize), Math.min(this.#tailBegin, (code + 1) * pageSize));
      numVisited += 1;
    }
    this.#refresh();
    group.finish(out.data, row * valueDim);
    if (states !== undefined) group.store(states, row);
    if (mass !== undefined) {
      const stride = options.massStride ?? Math.floor(mass.length / numKvHeads);
      group.addMass(mass, kvHead * stride, this.#tokens, this.#numTokens);
    }
    report.pagesVisited[kvHead] = numVisited;
    report.numPages = numPages;
    report.tokensVisited[kvHead] = this.#numTokens;
    const largestNorm = this.#largestUnvisitedNorm(kvHead);
    for (let head = 0; head < groupSize; head++) {
      const certificate = heap.size === 0 ? 0 : this.#certificate(head);
      let norm = 0;
      for (let i = 0; i < valueDim; i++) norm += out.data[(row + head) * valueDim + i] ** 2;
      report.certificate[kvHead * groupSize + head] = certificate;
      report.errorBound[kvHead * groupSize + head] = certificate * (largestNorm + Math.sqrt(norm));
    }
    this.pairs += this.#numTokens * groupSize;
    reportVisit(visits, length - 1, kvHead * groupSize, groupSize, this.#tokens, this.#numTokens);
  }

  #visit(kvHead: number, begin: number, end: number): void {
    const { keys, values } = this.#kv;
    for (let j = begin; j < end; j++) {
      this.#group.add(keys, values, j, kvHead);
      this.#tokens[this.#numTokens++] = j;
    }
  }

  /** Puts every candidate page into the heap, boxes of 16 pages where all of them are candidates as a whole. */
  #fillHeap(kvHead: number): number {
    const { pageSize } = this.policy;
    const heap = this.#heap;
    heap.clear();
    if (this.#tailBegin <= this.#exactEnd) return 0;
    const first = Math.floor(this.#exactEnd / pageSize);
    const end = Math.ceil(this.#tailBegin / pageSize);
    const usesSupers = this.#twoLevels ?? end - first >= 64;
    const superTokens = pageSize * pagesPerSuper;
    for (let page = first; page < end;) {
      const isWhole = page * pageSize >= this.#exactEnd && page * pageSize + superTokens <= this.#tailBegin;
      if (usesSupers && page % pagesPerSuper === 0 && isWhole) {
        this.#push(this.boxes.supers, page / pagesPerSuper, ~(page / pagesPerSuper), superTokens, kvHead);
        page += pagesPerSuper;
      } else {
        this.#pushPage(page, kvHead);
        page += 1;
      }
    }
    return end - first;
  }

  #pushPage(page: number, kvHead: number): void {
    const { pageSize } = this.policy;
    const begin = Math.max(this.#exactEnd, page * pageSize);
    const end = Math.min(this.#tailBegin, (page + 1) * pageSize);
    this.#push(this.boxes.pages, page, page, end - begin, kvHead);
  }

  #push(boxes: PageBoxes['pages'], index: number, code: number, count: number, kvHead: number): void {
    const { groupSize, headDim } = this.shape;
    const at = this.#heap.nextBounds();
    for (let head = 0; head < groupSize; head++) {
      this.#heap.bounds[at + head] = boxes.upperBound(index, kvHead, this.#group.query, head * headDim);
    }
    this.#heap.push(code, count);
  }

  /** Sums up what is left, relative to the running maximum of each head (the largest bound where there is none yet). */
  #refresh(): void {
    const { m } = this.#group.rows;
    for (let head = 0; head < this.shape.groupSize; head++) {
      this.#reference[head] = m[head];
      this.#remaining[head] = this.#heap.remaining(head, m[head]);
      this.#lastFresh[head] = this.#remaining[head];
    }
  }

  #forget(item: number): void {
    const { groupSize } = this.shape;
    const heap = this.#heap;
    let isStale = false;
    for (let head = 0; head < groupSize; head++) {
      this.#remaining[head] -=
        heap.counts[item] * Math.exp(heap.bounds[item * groupSize + head] - this.#reference[head]);
      const wasAnything = this.#lastFresh[head] !== 0;
      if (wasAnything && !(this.#remaining[head] > refreshBelow * this.#lastFresh[head])) isStale = true;
    }
    if (isStale) this.#refresh();
  }

  /** `S / (S + Z)` of one head. */
  #certificate(head: number): number {
    const { m, l } = this.#group.rows;
    const missing = this.#remaining[head] * Math.exp(this.#reference[head] - m[head]);
    return missing <= Number.MAX_VALUE ? missing / (missing + l[head]) : 1;
  }

  #largestCertificate(): number {
    let largest = 0;
    for (let head = 0; head < this.shape.groupSize; head++) largest = Math.max(largest, this.#certificate(head));
    return largest;
  }

  #largestUnvisitedNorm(kvHead: number): number {
    const { maxNorm } = this.boxes;
    const { numKvHeads } = this.shape;
    let largest = 0;
    for (let i = 0; i < this.#heap.size; i++) {
      const code = this.#heap.code(i);
      const first = code < 0 ? ~code * pagesPerSuper : code;
      const end = code < 0 ? first + pagesPerSuper : first + 1;
      for (let page = first; page < end; page++) largest = Math.max(largest, maxNorm[page * numKvHeads + kvHead]);
    }
    return largest;
  }
}
