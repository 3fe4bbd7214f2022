/**
 * How `verified-topk-attention` samples keys: pages with large bounds are heavy and read as a whole; each key of the
 * others is drawn with a probability that is a power of two and follows the bound of its page.
 */
import type { Attributes } from '../spec/op-spec.js';
import { boxBound, type PageBox } from './page-selection.js';
import { bindCap, chooseLargest } from './sparse-inputs.js';

/** The largest exponent of a page relative to that of the best page: rarer keys would not change an f32 sum. */
export const maxPageExponent = 20;
/** The largest exponent of a probability: a level has 32 bits. */
export const maxExponent = 31;

/** Sizes of the sampling for one KV head. */
export interface PageSamplingShape {
  readonly maxPages: number;
  readonly groupSize: number;
  readonly headDim: number;
}

/** After `begin`, `add` every page that is not fixed, then `close`. */
export class PageSampling {
  readonly #shape: PageSamplingShape;
  readonly #scale: number;
  readonly #cap: (logit: number) => number;
  readonly #budget: number;
  readonly #sample: number;
  readonly #queries: Float64Array; // [groupSize, headDim], scaled
  readonly #pages: Int32Array;
  readonly #numSeen: Int32Array;
  readonly #bounds: Float64Array; // [maxPages, groupSize]
  readonly #nearness: Float64Array; // [maxPages], bound minus the largest bound, of the head where that is largest
  readonly #isHeavy: Uint8Array;
  readonly #exponents: Int32Array; // [maxPages] by page, 0 for pages that are always read
  #numPages = 0;

  /** @param attributes of `verified-topk-attention` */
  constructor(shape: PageSamplingShape, attributes: Attributes) {
    const { maxPages, groupSize, headDim } = shape;
    this.#shape = shape;
    this.#scale = attributes['scale'] as number;
    this.#cap = bindCap(attributes);
    this.#budget = attributes['budget'] as number;
    this.#sample = attributes['sample'] as number;
    this.#queries = new Float64Array(groupSize * headDim);
    this.#pages = new Int32Array(maxPages);
    this.#numSeen = new Int32Array(maxPages);
    this.#bounds = new Float64Array(maxPages * groupSize);
    this.#nearness = new Float64Array(maxPages);
    this.#isHeavy = new Uint8Array(maxPages);
    this.#exponents = new Int32Array(maxPages);
  }

  /** @param queries of the group, `[groupSize, headDim]` at `begin` */
  begin(queries: Float32Array, begin: number): void {
    for (let i = 0; i < this.#queries.length; i++) this.#queries[i] = queries[begin + i] * this.#scale;
    this.#numPages = 0;
    this.#exponents.fill(0);
  }

  /** @param numSeen visible keys of the page */
  add(page: number, numSeen: number, box: PageBox): void {
    const { groupSize, headDim } = this.#shape;
    const index = this.#numPages++;
    for (let g = 0; g < groupSize; g++) {
      this.#bounds[index * groupSize + g] = this.#cap(boxBound(this.#queries, g * headDim, box, headDim));
    }
    this.#pages[index] = page;
    this.#numSeen[index] = numSeen;
  }

  /** All pages are added: selects the heavy ones, and computes the exponents of the others. */
  close(): void {
    const { groupSize } = this.#shape;
    const numPages = this.#numPages;
    this.#nearness.fill(-Infinity, 0, numPages);
    for (let g = 0; g < groupSize; g++) {
      let top = -Infinity;
      for (let i = 0; i < numPages; i++) top = Math.max(top, this.#bounds[i * groupSize + g]);
      for (let i = 0; i < numPages; i++) {
        this.#nearness[i] = Math.max(this.#nearness[i], this.#bounds[i * groupSize + g] - top);
      }
    }
    chooseLargest(this.#nearness, numPages, this.#budget, this.#isHeavy);
    let expected = 0; // keys of a sample with the exponents of the pages alone
    for (let i = 0; i < numPages; i++) {
      if (Number.isNaN(this.#nearness[i])) this.#isHeavy[i] = 1; // NaN and infinite logits are always read
      if (this.#isHeavy[i] === 1) continue;
      const exponent = pageExponent(this.#nearness[i]);
      this.#exponents[this.#pages[i]] = exponent;
      expected += this.#numSeen[i] * 2 ** -exponent;
    }
    // the sample has at least `sample` keys and less than twice as many
    let shift = 0;
    while (expected >= 2 * this.#sample && shift < maxExponent) {
      expected /= 2;
      shift += 1;
    }
    for (; expected > 0 && expected < this.#sample && shift > -maxPageExponent; shift--) expected *= 2;
    for (let i = 0; i < numPages; i++) {
      const page = this.#pages[i];
      if (this.#isHeavy[i] === 0) this.#exponents[page] = Math.min(maxExponent, this.#exponents[page] + shift);
    }
  }

  /** Each key of a page is in the first sample with a probability of 2^-exponent, with certainty if it is at most 0. */
  exponentOf(page: number): number {
    return this.#exponents[page];
  }
}

/**
 * The probability of a key is proportional to the square root of the bound of its softmax weight: between a uniform
 * sample, which misses rare heavy keys, and the bounds themselves, which are too loose to be shares.
 */
function pageExponent(nearness: number): number {
  return Math.min(maxPageExponent, Math.floor(-nearness / (2 * Math.LN2)));
}
