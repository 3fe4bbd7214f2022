/**
 * The prefetches of one layer: which items get a slot before they are requested, and which of those are dropped because
 * their signal fired, an `ensure` needs the room, or the cache is closed. Items that an `ensure` waits for are never
 * dropped here.
 */
import type { ItemMarks } from '../item-marks.js';
import type { LayerCounters } from './counters.js';
import type { SlotLoads } from '../slot-loads.js';
import { SlotSearch, type SlotRules } from '../slot-search.js';
import type { SlotTable } from '../slot-table.js';

export interface LayerPrefetchOptions {
  readonly table: SlotTable;
  readonly loads: SlotLoads;
  readonly counters: LayerCounters;
  /** Marks of the current ids, shared with the layer: each use begins a new set. */
  readonly marks: ItemMarks;
  readonly rules: SlotRules;
  /** Whether an `ensure` waits for the load of this slot. */
  readonly isAwaited: (slot: number) => boolean;
  /** Frees a slot unless one is free; returns false if the search finds none. */
  readonly takeSlot: (search: SlotSearch) => boolean;
  /** Starts to load items, in ascending order, into their slots. */
  readonly load: (items: Int32Array) => void;
  /** Releases a slot whose item was being prefetched. */
  readonly drop: (slot: number) => void;
}

export class LayerPrefetch {
  readonly #options: LayerPrefetchOptions;
  /** Skips the current ids, so that a prefetch does not evict its own items. */
  readonly #search: SlotSearch;
  /** Slots that a prefetch filled and that have not been requested since. */
  readonly #isAhead: Uint8Array;
  readonly #stopListening: (() => void)[] = [];

  constructor(options: LayerPrefetchOptions) {
    const { table, marks, rules } = options;
    this.#options = options;
    this.#isAhead = new Uint8Array(table.numSlots);
    const isHeld = (slot: number): boolean => rules.isHeld(slot) || marks.has(table.itemOf[slot]);
    this.#search = new SlotSearch(table, { isHeld, isLoading: rules.isLoading });
  }

  /** Bytes per slot. */
  static readonly slotBytes: number = 1;

  /** Assigns free slots to items without one, and starts to load them. */
  start(ids: Int32Array, count: number, signal: AbortSignal | undefined): void {
    const { table, counters, marks, takeSlot, load } = this.#options;
    marks.clear();
    let numWanted = 0;
    for (let index = 0; index < count; index++) {
      const item = ids[index];
      if (!marks.add(item)) continue;
      if (table.slotOf[item] >= 0) table.touch(table.slotOf[item]);
      else numWanted++;
    }
    if (numWanted === 0) return;
    this.#search.start();
    const items = new Int32Array(numWanted);
    let numItems = 0;
    for (let index = 0; index < count; index++) {
      const item = ids[index];
      if (table.slotOf[item] >= 0) continue;
      if (!takeSlot(this.#search)) {
        counters.prefetchesRefused += numWanted - numItems;
        break;
      }
      items[numItems++] = item;
      this.#isAhead[table.assign(item)] = 1;
    }
    if (numItems === 0) return;
    counters.prefetches += numItems;
    const taken = items.subarray(0, numItems).sort();
    load(taken);
    if (signal !== undefined) this.#dropOn(signal, taken);
  }

  /** Counts the first request for a prefetched item. */
  observe(slot: number): void {
    if (this.#isAhead[slot] === 0) return;
    this.#isAhead[slot] = 0;
    this.#options.counters.prefetchHits++;
  }

  /** Called when the slot was released. */
  forget(slot: number): void {
    this.#isAhead[slot] = 0;
  }

  /** Drops all pending prefetches. */
  cancel(): void {
    const { table, loads, isAwaited, drop } = this.#options;
    for (let slot = 0; slot < table.numSlots; slot++) {
      if (loads.isLoading(slot) && !isAwaited(slot)) drop(slot);
    }
    loads.cancelDead();
  }

  /** Drops prefetches of items that are not among the ids; for an `ensure` that has not begun. */
  dropOthers(ids: Int32Array, count: number): void {
    const { table, loads, marks, drop } = this.#options;
    marks.clear();
    for (let index = 0; index < count; index++) marks.add(ids[index]);
    for (let slot = 0; slot < table.numSlots; slot++) {
      if (loads.isLoading(slot) && !marks.has(table.itemOf[slot])) drop(slot);
    }
    loads.cancelDead();
  }

  /** Without pending loads, the signals of prefetches have nothing to drop. */
  forgetSignals(): void {
    if (this.#stopListening.length === 0) return;
    const { hasReads, isWriting } = this.#options.loads;
    if (!hasReads && !isWriting) this.#stopAll();
  }

  close(): void {
    this.cancel();
    this.#stopAll();
  }

  /**
   * Releases the slots of items that are still being loaded when the signal fires, unless an `ensure` waits for them.
   */
  #dropOn(signal: AbortSignal, items: Int32Array): void {
    const { table, loads, isAwaited } = this.#options;
    const slots = items.map((item) => table.slotOf[item]);
    const tokens = slots.map((slot) => loads.tokenOf(slot));
    const drop = (): void => {
      for (const [index, slot] of slots.entries()) {
        if (loads.tokenOf(slot) !== tokens[index]) continue;
        if (loads.isLoading(slot) && !isAwaited(slot)) this.#options.drop(slot);
      }
      loads.cancelDead();
    };
    signal.addEventListener('abort', drop, { once: true });
    this.#stopListening.push(() => signal.removeEventListener('abort', drop));
  }

  #stopAll(): void {
    for (const stop of this.#stopListening.splice(0)) stop();
  }
}
