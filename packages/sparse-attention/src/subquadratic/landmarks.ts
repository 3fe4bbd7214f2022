/** Running means of the keys and values of each block. Appending costs O(heads x dim); full blocks never change. */
import type { KvRows, Rows } from '../core/rows.js';

/** Means as rows: position = block. Blocks that no token has reached are zeros. */
export class Landmarks {
  readonly blockSize: number;
  readonly keys: Rows;
  readonly values: Rows;
  #length = 0;
  readonly #kv: KvRows;
  readonly #keyMeans: MeanRows;
  readonly #valueMeans: MeanRows;

  constructor(kv: KvRows, blockSize: number) {
    this.blockSize = blockSize;
    this.#kv = kv;
    this.#keyMeans = new MeanRows(kv.keys);
    this.#valueMeans = new MeanRows(kv.values);
    this.keys = this.#keyMeans;
    this.values = this.#valueMeans;
  }

  /** Tokens that the means know. */
  get length(): number {
    return this.#length;
  }

  /** Tokens of a block. */
  count(block: number): number {
    return Math.max(0, Math.min(this.blockSize, this.#length - block * this.blockSize));
  }

  /** Takes in the rows that were appended since. */
  append(): void {
    const { blockSize } = this;
    for (; this.#length < this.#kv.length; this.#length++) {
      const block = Math.floor(this.#length / blockSize);
      const count = (this.#length % blockSize) + 1;
      this.#keyMeans.add(block, this.#length, count);
      this.#valueMeans.add(block, this.#length, count);
    }
  }

  /** Forgets tokens from `length` on. Only the block that `length` falls into is computed again. */
  truncate(length: number): void {
    if (length >= this.#length) return;
    this.#length = length - (length % this.blockSize);
    const { blockSize } = this;
    for (; this.#length < length; this.#length++) {
      const block = Math.floor(this.#length / blockSize);
      const count = (this.#length % blockSize) + 1;
      this.#keyMeans.add(block, this.#length, count);
      this.#valueMeans.add(block, this.#length, count);
    }
  }
}

class MeanRows implements Rows {
  readonly numHeads: number;
  readonly dim: number;
  buffer: Float32Array;
  readonly #source: Rows;
  readonly #open: Float64Array; // means of the block that is being filled, [numHeads, dim]

  constructor(source: Rows) {
    this.#source = source;
    this.numHeads = source.numHeads;
    this.dim = source.dim;
    this.buffer = new Float32Array(0);
    this.#open = new Float64Array(this.numHeads * this.dim);
  }

  locate(block: number, head: number): number {
    return (block * this.numHeads + head) * this.dim;
  }

  add(block: number, position: number, count: number): void {
    const width = this.numHeads * this.dim;
    if (this.buffer.length < (block + 1) * width) {
      const grown = new Float32Array(Math.max(16 * width, 2 * this.buffer.length));
      grown.set(this.buffer);
      this.buffer = grown;
    }
    const open = this.#open;
    const source = this.#source;
    if (count === 1) open.fill(0);
    for (let head = 0; head < this.numHeads; head++) {
      const from = source.locate(position, head);
      const begin = head * this.dim;
      for (let i = 0; i < this.dim; i++) {
        open[begin + i] += (source.buffer[from + i] - open[begin + i]) / count;
        this.buffer[block * width + begin + i] = open[begin + i];
      }
    }
  }
}
