/**
 * Component-wise minimum and maximum of the keys of each page and KV head, as they are stored, and of 16 pages together;
 * the largest norm of the values of each page.
 */
import type { KvRows } from './rows.js';

/** Pages per box of the second level. */
export const pagesPerSuper = 16;

/** Boxes of one level: row (index, head) holds `dim` minima and `dim` maxima. */
class Boxes {
  readonly #width: number;
  readonly #dim: number;
  min: Float32Array<ArrayBuffer> = new Float32Array(0);
  max: Float32Array<ArrayBuffer> = new Float32Array(0);

  constructor(numHeads: number, dim: number) {
    this.#width = numHeads * dim;
    this.#dim = dim;
  }

  clear(index: number): void {
    if (this.min.length < (index + 1) * this.#width) {
      this.min = grown(this.min, (index + 1) * this.#width);
      this.max = grown(this.max, (index + 1) * this.#width);
    }
    this.min.fill(Infinity, index * this.#width, (index + 1) * this.#width);
    this.max.fill(-Infinity, index * this.#width, (index + 1) * this.#width);
  }

  include(index: number, head: number, min: Float32Array, max: Float32Array, offset: number): void {
    const begin = index * this.#width + head * this.#dim;
    for (let i = 0; i < this.#dim; i++) {
      if (min[offset + i] < this.min[begin + i]) this.min[begin + i] = min[offset + i];
      if (max[offset + i] > this.max[begin + i]) this.max[begin + i] = max[offset + i];
    }
  }

  /** The largest `q . x` of any x in the box; as rounding is monotone, also of the sums in floating point. */
  upperBound(index: number, head: number, query: Float64Array, queryBegin: number): number {
    const begin = index * this.#width + head * this.#dim;
    const { min, max } = this;
    let sum = 0;
    for (let i = 0; i < this.#dim; i++) {
      const component = query[queryBegin + i];
      sum += component * (component > 0 ? max[begin + i] : min[begin + i]);
    }
    return sum;
  }
}

function grown(array: Float32Array<ArrayBuffer>, length: number): Float32Array<ArrayBuffer> {
  const result = new Float32Array(Math.max(length, 2 * array.length));
  result.set(array);
  return result;
}

/** Both levels of boxes over a cache that grows and shrinks at its end. */
export class PageBoxes {
  readonly pageSize: number;
  readonly pages: Boxes;
  readonly supers: Boxes;
  /** Largest norm of a value, per page and head. */
  maxNorm: Float32Array<ArrayBuffer> = new Float32Array(0); // [numPages, numKvHeads]
  #length = 0;
  readonly #kv: KvRows;

  constructor(kv: KvRows, pageSize: number) {
    this.#kv = kv;
    this.pageSize = pageSize;
    this.pages = new Boxes(kv.keys.numHeads, kv.keys.dim);
    this.supers = new Boxes(kv.keys.numHeads, kv.keys.dim);
  }

  append(): void {
    while (this.#length < this.#kv.length) this.#include(this.#length++);
  }

  /** Computes the page that `length` falls into again, and the box of 16 pages around it. */
  truncate(length: number): void {
    if (length >= this.#length) return;
    const page = Math.floor(length / this.pageSize);
    const group = Math.floor(page / pagesPerSuper);
    const { numHeads, dim } = this.#kv.keys;
    this.supers.clear(group);
    for (let p = group * pagesPerSuper; p < page; p++) {
      for (let head = 0; head < numHeads; head++) {
        this.supers.include(group, head, this.pages.min, this.pages.max, (p * numHeads + head) * dim);
      }
    }
    this.#length = page * this.pageSize;
    while (this.#length < length) this.#include(this.#length++);
  }

  #include(position: number): void {
    const { keys, values } = this.#kv;
    const page = Math.floor(position / this.pageSize);
    const group = Math.floor(page / pagesPerSuper);
    const { numHeads } = keys;
    if (position % this.pageSize === 0) {
      this.pages.clear(page);
      if (this.maxNorm.length < (page + 1) * numHeads) this.maxNorm = grown(this.maxNorm, (page + 1) * numHeads);
      this.maxNorm.fill(0, page * numHeads, (page + 1) * numHeads);
      if (page % pagesPerSuper === 0) this.supers.clear(group);
    }
    for (let head = 0; head < numHeads; head++) {
      const from = keys.locate(position, head);
      this.pages.include(page, head, keys.buffer, keys.buffer, from);
      this.supers.include(group, head, keys.buffer, keys.buffer, from);
      const valueFrom = values.locate(position, head);
      let norm = 0;
      for (let i = 0; i < values.dim; i++) norm += values.buffer[valueFrom + i] ** 2;
      const at = page * numHeads + head;
      // Rounded up, so that it stays a bound in f32.
      this.maxNorm[at] = Math.max(this.maxNorm[at], Math.sqrt(norm) * (1 + 2 ** -22));
    }
  }
}
