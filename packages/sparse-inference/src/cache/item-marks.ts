/** A set of items that is cleared in constant time. */
export class ItemMarks {
  readonly #at: Int32Array;
  #set = 0;

  constructor(numItems: number) {
    this.#at = new Int32Array(numItems);
  }

  /** Bytes per item. */
  static readonly itemBytes: number = 4;

  /** Begins a new set. */
  clear(): void {
    this.#set++;
  }

  has(item: number): boolean {
    return this.#at[item] === this.#set;
  }

  /** Adds an item to the set; returns false if it is already there. */
  add(item: number): boolean {
    if (this.#at[item] === this.#set) return false;
    this.#at[item] = this.#set;
    return true;
  }
}
