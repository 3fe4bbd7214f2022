/**
 * Which slot goes next: the least recently used one that may. A search passes over each slot once, however many it frees:
 * what it frees becomes the most recently used, and what it passed over may not go during this search.
 */
import type { SlotTable } from './slot-table.js';

export interface SlotRules {
  /** The slot may not go. */
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

  /** The next slot to go, -1 when there is none: first those that have their items, then (if asked for) those that load. */
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
