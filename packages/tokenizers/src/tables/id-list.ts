/** Maximum number of values that are copied. */
const maxCopied = 1 << 18;

/** A growable list of int32 values: token ids, offsets. */
export class IdList {
  #values: Int32Array;
  #length = 0;

  constructor(capacity = 64) {
    this.#values = new Int32Array(capacity);
  }

  get length(): number {
    return this.#length;
  }

  /** The backing array. Values beyond `length` are undefined, and growing replaces the array. */
  get values(): Int32Array {
    return this.#values;
  }

  push(value: number): void {
    if (this.#length === this.#values.length) this.#grow(this.#length + 1);
    this.#values[this.#length++] = value;
  }

  pushAll(values: ArrayLike<number>, length: number = values.length): void {
    if (this.#length + length > this.#values.length) this.#grow(this.#length + length);
    for (let index = 0; index < length; index++) this.#values[this.#length + index] = values[index]!;
    this.#length += length;
  }

  /** Shortens the list. */
  truncate(length: number): void {
    this.#length = length;
  }

  /** Reverses the values from `start` to the end. */
  reverseFrom(start: number): void {
    this.#values.subarray(start, this.#length).reverse();
  }

  /** The values, after which the list must not change: megabytes of them are not copied. */
  toArray(): Int32Array {
    const isCopied = this.#length <= maxCopied;
    return isCopied ? this.#values.slice(0, this.#length) : this.#values.subarray(0, this.#length);
  }

  #grow(needed: number): void {
    const grown = new Int32Array(Math.max(needed, this.#values.length * 2, 64));
    grown.set(this.#values.subarray(0, this.#length));
    this.#values = grown;
  }
}
