/**
 * Maps items to places of a tier and keeps the LRU order. Typed arrays only; every operation takes constant time. A
 * place is free or taken by an item; a taken place is in the LRU list unless it is pinned.
 */
import { invariant } from '@winnow/tensor';

export class SlotTable {
  readonly numSlots: number;
  /** Item of each place, -1 for none. */
  readonly itemOf: Int32Array;
  /** Place of each item, -1 for none. */
  readonly slotOf: Int32Array;
  // the LRU list: a ring through entry `numSlots`, whose `#newer` is the least recently used place
  readonly #newer: Int32Array;
  readonly #older: Int32Array;
  readonly #free: Int32Array;
  #numFree: number;

  constructor(numSlots: number, numItems: number) {
    this.numSlots = numSlots;
    this.itemOf = new Int32Array(numSlots).fill(-1);
    this.slotOf = new Int32Array(numItems).fill(-1);
    this.#newer = new Int32Array(numSlots + 1).fill(-1);
    this.#older = new Int32Array(numSlots + 1).fill(-1);
    this.#newer[numSlots] = numSlots;
    this.#older[numSlots] = numSlots;
    this.#free = Int32Array.from({ length: numSlots }, (_, index) => numSlots - 1 - index);
    this.#numFree = numSlots;
  }

  /** Size in bytes of a table. */
  static sizeBytes(numSlots: number, numItems: number): number {
    return 4 * (4 * numSlots + numItems + 2);
  }

  get numFree(): number {
    return this.#numFree;
  }

  /** Assigns a free place to the item, as the most recently used one. There must be one. */
  assign(item: number): number {
    const slot = this.#free[--this.#numFree];
    this.itemOf[slot] = item;
    this.slotOf[item] = slot;
    this.#link(slot);
    return slot;
  }

  /** Removes the item from its place and the place from the LRU list. `addFree` makes it available again. */
  detach(slot: number): void {
    this.slotOf[this.itemOf[slot]] = -1;
    this.itemOf[slot] = -1;
    if (this.#newer[slot] >= 0) this.#unlink(slot);
  }

  addFree(slot: number): void {
    this.#free[this.#numFree++] = slot;
  }

  /** `detach` and `addFree`. */
  release(slot: number): void {
    this.detach(slot);
    this.addFree(slot);
  }

  /** Marks the place as the most recently used one. Pinned places stay pinned. */
  touch(slot: number): void {
    if (this.#newer[slot] < 0) return;
    this.#unlink(slot);
    this.#link(slot);
  }

  /** Pins a place: removes it from the LRU list for good. */
  pin(slot: number): void {
    this.#unlink(slot);
  }

  isPinned(slot: number): boolean {
    return this.itemOf[slot] >= 0 && this.#newer[slot] < 0;
  }

  /** The least recently used place, or `numSlots` if there is none. */
  get oldest(): number {
    return this.#newer[this.numSlots];
  }

  /** The place used next after this one, or `numSlots` at the end. */
  newerThan(slot: number): number {
    return this.#newer[slot];
  }

  /** @param isApart places that are neither free nor taken */
  checkIntegrity(isApart: (slot: number) => boolean = () => false): void {
    const state = new Uint8Array(this.numSlots);
    for (let index = 0; index < this.#numFree; index++) {
      const slot = this.#free[index];
      invariant(state[slot] === 0 && this.itemOf[slot] === -1, `slot ${slot} is free once and has no item`);
      invariant(this.#newer[slot] === -1, `free slot ${slot} is not in the LRU list`);
      state[slot] = 1;
    }
    let previous = this.numSlots;
    for (let slot = this.oldest; slot !== this.numSlots; slot = this.#newer[slot]) {
      invariant(state[slot] === 0, `slot ${slot} is once in the LRU list`);
      invariant(this.#older[slot] === previous, `slot ${slot} knows the one before it`);
      invariant(this.itemOf[slot] >= 0, `slot ${slot} in the LRU list has an item`);
      state[slot] = 2;
      previous = slot;
    }
    invariant(this.#older[this.numSlots] === previous, 'the LRU list ends where it began');
    let numTaken = 0;
    for (let slot = 0; slot < this.numSlots; slot++) {
      const item = this.itemOf[slot];
      if (item >= 0) {
        numTaken++;
        invariant(this.slotOf[item] === slot, `item ${item} knows its slot ${slot}`);
      } else {
        invariant(state[slot] === 1 || isApart(slot), `slot ${slot} without an item is free`);
      }
    }
    for (const slot of this.slotOf) if (slot >= 0) numTaken--;
    invariant(numTaken === 0, 'as many items have slots as slots have items');
  }

  #link(slot: number): void {
    const { numSlots } = this;
    const last = this.#older[numSlots];
    this.#newer[last] = slot;
    this.#older[slot] = last;
    this.#newer[slot] = numSlots;
    this.#older[numSlots] = slot;
  }

  #unlink(slot: number): void {
    const older = this.#older[slot];
    const newer = this.#newer[slot];
    this.#newer[older] = newer;
    this.#older[newer] = older;
    this.#newer[slot] = -1;
    this.#older[slot] = -1;
  }
}
