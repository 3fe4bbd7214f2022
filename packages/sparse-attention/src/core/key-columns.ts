/** A transposed copy of the keys, page by page: the columns that SparQ reads are contiguous. */
import { floatToHalf, halfTable } from '@winnow/tensor';
import type { Rows } from './rows.js';

const pageSize = 64;

/** Column-major keys, `[page][head][dim][64]`, as f32 or f16. */
export class KeyColumns {
  readonly #keys: Rows;
  readonly #isHalf: boolean;
  readonly #pages: (Float32Array | Uint16Array)[] = [];
  #length = 0;

  constructor(keys: Rows, isHalf = false) {
    this.#keys = keys;
    this.#isHalf = isHalf;
  }

  get sizeBytes(): number {
    return this.#pages.reduce((sum, page) => sum + page.byteLength, 0);
  }

  append(length: number): void {
    const { numHeads, dim, locate } = this.#keys;
    for (; this.#length < length; this.#length++) {
      const slot = this.#length % pageSize;
      const index = (this.#length - slot) / pageSize;
      if (index === this.#pages.length) {
        const size = numHeads * dim * pageSize;
        this.#pages.push(this.#isHalf ? new Uint16Array(size) : new Float32Array(size));
      }
      const page = this.#pages[index];
      for (let head = 0; head < numHeads; head++) {
        const from = locate.call(this.#keys, this.#length, head);
        const { buffer } = this.#keys;
        for (let i = 0; i < dim; i++) {
          const value = buffer[from + i];
          page[(head * dim + i) * pageSize + slot] = this.#isHalf ? floatToHalf(value) : value;
        }
      }
    }
  }

  truncate(length: number): void {
    this.#length = Math.min(this.#length, length);
  }

  /** `scores[j] += factor * key[j][component]` for `j < length`. */
  addColumn(head: number, component: number, factor: number, scores: Float64Array, length: number): void {
    const begin = (head * this.#keys.dim + component) * pageSize;
    const halves = this.#isHalf ? halfTable() : undefined;
    for (let first = 0; first < length; first += pageSize) {
      const page = this.#pages[first / pageSize];
      const count = Math.min(pageSize, length - first);
      if (halves === undefined) {
        for (let i = 0; i < count; i++) scores[first + i] += factor * page[begin + i];
      } else {
        for (let i = 0; i < count; i++) scores[first + i] += factor * halves[page[begin + i]];
      }
    }
  }
}
