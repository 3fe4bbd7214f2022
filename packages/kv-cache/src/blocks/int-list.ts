/** A growable list of 32-bit integers for tokens and positions. */

export class IntList {
  #data: Int32Array<ArrayBuffer>;
  #length = 0;

  constructor(values: ArrayLike<number> = []) {
    this.#data = new Int32Array(Math.max(16, values.length));
    this.#data.set(values);
    this.#length = values.length;
  }

  get length(): number {
    return this.#length;
  }

  /** The values: a view, valid until the next change. */
  view(): Int32Array<ArrayBuffer> {
    return this.#data.subarray(0, this.#length);
  }

  at(index: number): number {
    return this.#data[index];
  }

  set(index: number, value: number): void {
    this.#data[index] = value;
  }

  push(value: number): void {
    if (this.#length === this.#data.length) {
      const grown = new Int32Array(this.#data.length * 2);
      grown.set(this.#data);
      this.#data = grown;
    }
    this.#data[this.#length++] = value;
  }

  /** Shortens the list to its first `length` values. */
  truncate(length: number): void {
    this.#length = Math.min(this.#length, length);
  }

  /** Removes the values `[begin, end)`. */
  remove(begin: number, end: number): void {
    this.#data.copyWithin(begin, end, this.#length);
    this.#length -= end - begin;
  }

  /** Inserts `values` before the value at `index`. */
  insert(index: number, values: ArrayLike<number>): void {
    const numMoved = this.#length - index;
    for (let i = 0; i < values.length; i++) this.push(0);
    this.#data.copyWithin(index + values.length, index, index + numMoved);
    this.#data.set(values, index);
  }
}
