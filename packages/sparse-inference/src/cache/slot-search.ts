/**
 * Finds the next slot to evict: the least recently used one that is allowed. A search visits each slot once, however
 * many it frees: freed slots become the most recently used, and skipped ones stay skipped during this search.
 */
import type { SlotTable } from './slot-table.js';

export interface SlotRules {
  /** Whether the slot must not be evicted. */
  readonly isHeld: (slot: number) => boolean;
  readonly isLoading: (slot: number) => boolean;
}

export class SlotSearch {
  readonly #table: SlotTable;
  readonly #rules: SlotRules;
  #cursor = 0;
  #takesLoading = false;

  constructor(table: SlotTable, rules: SlotRules) {
    this.#table = table;
    this.#rules = rules;
  }

  start(): void {
    this.#cursor = this.#table.oldest;
    this.#takesLoading = false;
  }

  /** The next slot to evict, -1 if there is none: first loaded slots, then (if requested) loading ones. */
  next(mayTakeLoading: boolean): number {
    const { oldest, numSlots } = this.#table;
    for (;;) {
      const slot = this.#cursor;
      if (slot === numSlots) {
        if (!mayTakeLoading || this.#takesLoading) return -1;
        this.#takesLoading = true;
        this.#cursor = oldest;
        continue;
      }
      this.#cursor = this.#table.newerThan(slot);
      if (this.#rules.isLoading(slot) === this.#takesLoading && !this.#rules.isHeld(slot)) return slot;
    }
  }
}
