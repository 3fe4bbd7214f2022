/** Pages (or boxes of 16) that were not visited yet, largest bound first, and how much mass they may hold. */

/** Reusable. An item has a code, a number of tokens and one bound per query head. */
export class PageHeap {
  size = 0;
  codes: Int32Array = new Int32Array(0);
  counts: Int32Array = new Int32Array(0);
  bounds: Float64Array = new Float64Array(0); // [size, numRows]
  readonly #numRows: number;
  #order = new Int32Array(0); // heap of item indices
  #keys = new Float64Array(0);
  #numItems = 0;

  constructor(numRows: number) {
    this.#numRows = numRows;
  }

  clear(): void {
    this.size = 0;
    this.#numItems = 0;
  }

  /** The row of `bounds` to fill before `push`. */
  nextBounds(): number {
    const needed = this.#numItems + 1;
    if (this.codes.length < needed) {
      const length = Math.max(64, 2 * needed);
      this.codes = copied(new Int32Array(length), this.codes);
      this.counts = copied(new Int32Array(length), this.counts);
      this.#order = copied(new Int32Array(length), this.#order);
      this.#keys = copied(new Float64Array(length), this.#keys);
      this.bounds = copied(new Float64Array(length * this.#numRows), this.bounds);
    }
    return this.#numItems * this.#numRows;
  }

  push(code: number, count: number): void {
    const item = this.#numItems++;
    this.codes[item] = code;
    this.counts[item] = count;
    let key = -Infinity;
    for (let row = 0; row < this.#numRows; row++) key = Math.max(key, this.bounds[item * this.#numRows + row]);
    this.#keys[item] = key;
    let at = this.size++;
    while (at > 0) {
      const parent = (at - 1) >>> 1;
      if (!this.#isBefore(item, this.#order[parent])) break;
      this.#order[at] = this.#order[parent];
      at = parent;
    }
    this.#order[at] = item;
  }

  /** Takes out the item of the largest bound (ties: the lower code) and returns its index. */
  pop(): number {
    const top = this.#order[0];
    const last = this.#order[--this.size];
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.size) break;
      if (child + 1 < this.size && this.#isBefore(this.#order[child + 1], this.#order[child])) child += 1;
      if (!this.#isBefore(this.#order[child], last)) break;
      this.#order[at] = this.#order[child];
      at = child;
    }
    this.#order[at] = last;
    return top;
  }

  /** Sum over what is left of `count * exp(bound - reference)` for one query head. */
  remaining(row: number, reference: number): number {
    let sum = 0;
    for (let i = 0; i < this.size; i++) {
      const item = this.#order[i];
      sum += this.counts[item] * Math.exp(this.bounds[item * this.#numRows + row] - reference);
    }
    return sum;
  }

  /** Codes of what is left, in no order. */
  code(index: number): number {
    return this.codes[this.#order[index]];
  }

  #isBefore(a: number, b: number): boolean {
    const difference = this.#keys[a] - this.#keys[b];
    return difference > 0 || (difference === 0 && this.codes[a] < this.codes[b]);
  }
}

function copied<T extends Int32Array | Float64Array>(target: T, source: T): T {
  target.set(source);
  return target;
}
