/**
 * Hash table from a pair of non-negative int32 to a pair of int32. Open addressing, linear probing, at most half full:
 * merges and trie edges are looked up millions of times, where a `Map` with composite keys costs several times more.
 */
export class PairTable {
  // Per slot: first, second, value, extra. first = -1 marks an empty slot.
  #slots: Int32Array;
  #mask: number;
  #size = 0;

  constructor(expected = 16) {
    let capacity = 32;
    while (capacity < expected * 2) capacity *= 2;
    this.#slots = new Int32Array(capacity * 4).fill(-1);
    this.#mask = capacity - 1;
  }

  get size(): number {
    return this.#size;
  }

  /** Slot of a pair for `value` and `extra`, or -1. Valid until the next `set`. */
  find(first: number, second: number): number {
    const slots = this.#slots;
    let slot = hashPair(first, second) & this.#mask;
    for (;;) {
      const at = slot * 4;
      const stored = slots[at]!;
      if (stored === first && slots[at + 1] === second) return at;
      if (stored === -1) return -1;
      slot = (slot + 1) & this.#mask;
    }
  }

  value(position: number): number {
    return this.#slots[position + 2]!;
  }

  extra(position: number): number {
    return this.#slots[position + 3]!;
  }

  /** Adds a pair that is not in the table yet and returns its slot. */
  add(first: number, second: number, value: number, extra = 0): number {
    if ((this.#size + 1) * 2 > this.#mask + 1) this.#grow();
    this.#size++;
    return this.#insert(first, second, value, extra);
  }

  clear(): void {
    this.#slots.fill(-1);
    this.#size = 0;
  }

  #insert(first: number, second: number, value: number, extra: number): number {
    const slots = this.#slots;
    let slot = hashPair(first, second) & this.#mask;
    while (slots[slot * 4] !== -1) slot = (slot + 1) & this.#mask;
    const at = slot * 4;
    slots[at] = first;
    slots[at + 1] = second;
    slots[at + 2] = value;
    slots[at + 3] = extra;
    return at;
  }

  #grow(): void {
    const old = this.#slots;
    this.#slots = new Int32Array(old.length * 2).fill(-1);
    this.#mask = this.#mask * 2 + 1;
    for (let at = 0; at < old.length; at += 4) {
      if (old[at] !== -1) this.#insert(old[at]!, old[at + 1]!, old[at + 2]!, old[at + 3]!);
    }
  }
}

function hashPair(first: number, second: number): number {
  let hash = Math.imul(first, 0x9e3779b1) ^ Math.imul(second + 0x7f4a7c15, 0x85ebca6b);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 0x2c1b3c6d);
  return hash ^ (hash >>> 13);
}
