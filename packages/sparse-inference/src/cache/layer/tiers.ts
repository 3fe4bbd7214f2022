/**
 * One layer of the neuron cache: which items are in its slots, which are evicted, and which loads an `ensure` waits
 * for. The least recently used item is evicted first. Pinned items are never evicted, and items that an `ensure` holds
 * stay until the next one.
 */
import { ArgumentError, invariant, ReleasedError, type CapacityError } from '@winnow/tensor';
import { Activity } from '../activity.js';
import { WarmTier, type ColdCopy } from '../copy-tiers.js';
import { EnsureWait } from '../ensure-wait.js';
import type { ItemLayout, NeuronLayer } from '../item-layout.js';
import { ItemMarks } from '../item-marks.js';
import { LayerCounters, type NeuronLayerStatistics } from './counters.js';
import { busyError, checkIds, loadError, tooManyError } from './errors.js';
import { LayerPrefetch } from './prefetch.js';
import { loadItems } from '../load-items.js';
import { SlotLoads, type LoadFailure, type LoadPaths } from '../slot-loads.js';
import { SlotSearch, type SlotRules } from '../slot-search.js';
import { SlotTable } from '../slot-table.js';

export interface LayerTiersOptions extends LoadPaths {
  readonly index: number;
  readonly layer: NeuronLayer;
  readonly itemName: string;
}

const done: Promise<void> = Promise.resolve();

export class LayerTiers {
  readonly warm: WarmTier;
  readonly layout: ItemLayout;
  readonly numItems: number;
  readonly #index: number;
  readonly #itemName: string;
  readonly #activity: Activity;
  readonly #table: SlotTable;
  readonly #loads: SlotLoads;
  readonly #counters = new LayerCounters();
  /** The 4-bit copy, once it exists. */
  cold: ColdCopy | undefined;
  #numPinned = 0;
  /** A slot is held if its entry is the number of the current `ensure`. */
  readonly #heldAt: Int32Array;
  #epoch = 1;
  /** The items of the current ids. */
  readonly #marks: ItemMarks;
  readonly #missing: Int32Array;
  /** For slots that an `ensure` takes. */
  readonly #search: SlotSearch;
  readonly #prefetches: LayerPrefetch;
  #waiting: EnsureWait | undefined;
  #isWaitingForWrites = false;
  #isPinning = false;
  #isClosed = false;

  constructor(options: LayerTiersOptions) {
    const { index, layer, layout, itemName } = options;
    const { numItems, slots, warmSlots = 0, frequencies } = layer;
    this.layout = layout;
    this.numItems = numItems;
    this.#index = index;
    this.#itemName = itemName;
    this.#activity = new Activity(numItems, frequencies);
    this.#table = new SlotTable(slots, numItems);
    this.warm = new WarmTier(warmSlots, numItems, layout);
    this.#heldAt = new Int32Array(slots);
    this.#marks = new ItemMarks(numItems);
    this.#missing = new Int32Array(Math.min(slots, numItems));
    this.#loads = new SlotLoads(options, {
      table: this.#table,
      warm: this.warm,
      onLoaded: (slot) => this.#loaded(slot),
      onFailed: (slots, failure) => this.#failed(slots, failure),
    });
    const rules: SlotRules = {
      isHeld: (slot) => this.#heldAt[slot] === this.#epoch || this.#loads.isBusy(slot),
      isLoading: (slot) => this.#loads.isLoading(slot),
    };
    this.#search = new SlotSearch(this.#table, rules);
    this.#prefetches = new LayerPrefetch({
      table: this.#table,
      loads: this.#loads,
      counters: this.#counters,
      marks: this.#marks,
      rules,
      isAwaited: (slot) => this.#isAwaited(slot),
      takeSlot: (search) => this.#takeSlot(search, false),
      load: (items) => this.#load(items, false),
      drop: (slot) => this.#drop(slot),
    });
  }

  /** Bytes of the bookkeeping of a layer of this size. */
  static bookkeepingBytes(numItems: number, slots: number, warmSlots: number): number {
    const ofItem = Activity.itemBytes + ItemMarks.itemBytes;
    const ofSlot = SlotLoads.slotBytes + LayerPrefetch.slotBytes + 4 + 4;
    const tables = SlotTable.sizeBytes(slots, numItems) + SlotTable.sizeBytes(warmSlots, numItems);
    return tables + numItems * ofItem + slots * ofSlot + warmSlots;
  }

  /** Loads items into slots and pins them. */
  async pin(items: Int32Array, signal: AbortSignal | undefined): Promise<void> {
    if (items.length === 0) return;
    this.#isPinning = true;
    await this.ensure(items, items.length, new Int32Array(items.length), signal);
    this.#isPinning = false;
    for (const item of items) this.#table.pin(this.#table.slotOf[item]);
    this.#numPinned = items.length;
    this.#counters.reset();
    this.#epoch++;
  }

  fit(ids: Int32Array, begin: number, end: number): number {
    checkIds(ids, begin, end, this.#index, this.numItems);
    const available = this.#table.numSlots - this.#numPinned;
    const marks = this.#marks;
    marks.clear();
    let numTaken = 0;
    for (let index = begin; index < end; index++) {
      const item = ids[index];
      if (!this.#isPinned(item) && marks.add(item) && ++numTaken > available) return index - begin;
    }
    return end - begin;
  }

  ensure(ids: Int32Array, count: number, rowsOut: Int32Array, signal: AbortSignal | undefined): Promise<void> {
    this.#checkUsable();
    if (this.#waiting !== undefined || this.#isWaitingForWrites) throw busyError(this.#index, 'one ensure at a time');
    const fitting = this.fit(ids, 0, count);
    if (rowsOut.length < count) {
      throw new ArgumentError({ argument: 'rowsOut', expected: `room for ${count}`, actual: String(rowsOut.length) });
    }
    if (fitting < count) throw this.#tooMany(ids, count, fitting);
    signal?.throwIfAborted();
    if (this.#loads.isWriting) this.#prefetches.dropOthers(ids, count);
    return this.#loads.isLeaving
      ? this.#beginLater(ids, count, rowsOut, signal)
      : this.#begin(ids, count, rowsOut, signal);
  }

  /** Begins when the backend no longer writes into released slots, so that all slots are available. */
  async #beginLater(
    ids: Int32Array,
    count: number,
    rowsOut: Int32Array,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    this.#isWaitingForWrites = true;
    while (this.#loads.isLeaving) await this.#loads.nextWrite();
    this.#isWaitingForWrites = false;
    this.#checkUsable();
    signal?.throwIfAborted();
    await this.#begin(ids, count, rowsOut, signal);
  }

  release(): void {
    if (this.#waiting !== undefined || this.#isWaitingForWrites) throw busyError(this.#index, 'no ensure under way');
    this.#epoch++;
  }

  prefetch(ids: Int32Array, count: number, signal: AbortSignal | undefined): void {
    this.#checkUsable();
    checkIds(ids, 0, count, this.#index, this.numItems);
    if (signal?.aborted === true) return;
    this.#prefetches.forgetSignals();
    if (this.#isWaitingForWrites) this.#counters.prefetchesRefused += count;
    else this.#prefetches.start(ids, count, signal);
  }

  cancelPrefetch(): void {
    this.#prefetches.cancel();
  }

  tierOf(item: number): 'hot' | 'warm' | 'cold' {
    checkIds(Int32Array.of(item), 0, 1, this.#index, this.numItems);
    const slot = this.#table.slotOf[item];
    if (slot >= 0 && !this.#loads.isLoading(slot)) return 'hot';
    return this.warm.placeOf(item) >= 0 ? 'warm' : 'cold';
  }

  statistics(): NeuronLayerStatistics {
    return this.#counters.statistics(this.warm.numEvictions);
  }

  get usefulBytes(): number {
    return this.#loads.usefulBytes;
  }

  checkIntegrity(): void {
    this.#loads.checkIntegrity();
    this.warm.checkIntegrity();
    let numPinned = 0;
    let numAwaited = 0;
    for (let slot = 0; slot < this.#table.numSlots; slot++) {
      if (this.#table.isPinned(slot)) numPinned++;
      if (this.#loads.isLoading(slot) && this.#isAwaited(slot)) numAwaited++;
    }
    if (this.#loads.isIdle) invariant(this.warm.numBusy === 0, 'no warm place is kept when nothing is on its way');
    invariant(numPinned === this.#numPinned, `${this.#numPinned} pinned items keep their slots`);
    invariant(numAwaited === (this.#waiting?.numLeft ?? 0), 'the ensure waits for as many items as are on their way');
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#abandon(new ReleasedError('neuron cache'));
    this.#prefetches.close();
    while (this.#loads.isWriting) await this.#loads.nextWrite();
  }

  #begin(ids: Int32Array, count: number, rowsOut: Int32Array, signal: AbortSignal | undefined): Promise<void> {
    const table = this.#table;
    const loads = this.#loads;
    const counters = this.#counters;
    this.#prefetches.forgetSignals();
    const epoch = ++this.#epoch;
    const marks = this.#marks;
    marks.clear();
    this.#activity.advance();
    let numMissing = 0;
    let numLoading = 0;
    for (let index = 0; index < count; index++) {
      const item = ids[index];
      const slot = table.slotOf[item];
      if (marks.add(item)) {
        this.#activity.observe(item);
        counters.requests++;
        if (slot < 0) {
          this.#missing[numMissing++] = item;
          continue;
        }
        counters.hits++;
        this.#prefetches.observe(slot);
        this.#heldAt[slot] = epoch;
        table.touch(slot);
        if (loads.isLoading(slot)) numLoading++;
      }
      rowsOut[index] = slot;
    }
    if (loads.hasReads) this.#sortOutReads(numLoading > 0);
    if (numMissing === 0 && numLoading === 0) return done;
    let numLeft = numLoading;
    if (numMissing > 0) {
      numLeft += this.#loadMissing(numMissing);
      for (let index = 0; index < count; index++) rowsOut[index] = table.slotOf[ids[index]];
    }
    if (numLeft === 0) return done;
    this.#waiting = new EnsureWait(numLeft, signal, (reason) => this.#abandon(reason));
    return this.#waiting.promise;
  }

  /** Assigns slots to the items in `#missing` and starts to load them. Returns the number of pending loads. */
  #loadMissing(numMissing: number): number {
    const items = this.#missing.slice(0, numMissing).sort();
    this.#search.start();
    for (const item of items) {
      invariant(this.#takeSlot(this.#search, true), 'an ensure that fits finds its slots');
      this.#heldAt[this.#table.assign(item)] = this.#epoch;
    }
    this.#loads.cancelDead();
    this.#load(items, true);
    let numLoading = 0;
    for (const item of items) if (this.#loads.isLoading(this.#table.slotOf[item])) numLoading++;
    return numLoading;
  }

  #load(items: Int32Array, isWanted: boolean): void {
    const { slotOf } = this.#table;
    const { warm, cold } = this;
    // pinned items need no second copy
    const keepsWarm = !this.#isPinning;
    const sources = { loads: this.#loads, slotOf, warm, cold, activity: this.#activity, keepsWarm };
    const numWarm = loadItems(items, sources, isWanted);
    if (!isWanted) return;
    this.#counters.warmHits += numWarm;
    this.#counters.coldReads += items.length - numWarm;
  }

  /** Frees a slot unless one is free. Returns false if none can be evicted; a prefetch does not evict loading items. */
  #takeSlot(search: SlotSearch, mayTakeLoading: boolean): boolean {
    if (this.#table.numFree > 0) return true;
    const slot = search.next(mayTakeLoading);
    if (slot < 0) return false;
    if (this.#loads.isLoading(slot)) {
      this.#drop(slot);
    } else {
      this.#counters.evictions++;
      this.#giveUp(slot);
    }
    return true;
  }

  /** Drops queued reads that this `ensure` does not need, and moves the others to the front. */
  #sortOutReads(isLoading: boolean): void {
    const isHeld = (slot: number): boolean => this.#heldAt[slot] === this.#epoch;
    if (isLoading) this.#loads.raise(isHeld);
    for (const slot of this.#loads.idleSlots(isHeld)) this.#drop(slot);
    this.#loads.cancelDead();
  }

  #isAwaited(slot: number): boolean {
    return this.#waiting !== undefined && this.#heldAt[slot] === this.#epoch;
  }

  #loaded(slot: number): void {
    if (!this.#isAwaited(slot)) return;
    (this.#waiting as EnsureWait).numLeft--;
    this.#settleIfDone();
  }

  #failed(slots: readonly number[], failure: LoadFailure): void {
    const waiting = this.#waiting;
    const isFirst = waiting?.failure === undefined;
    for (const slot of slots) {
      if (this.#isAwaited(slot)) waiting?.fail(this.#table.itemOf[slot], failure);
      this.#giveUp(slot);
    }
    if (waiting?.failure === undefined) return;
    if (isFirst) {
      // the others are useless without these: reads that have not begun are dropped
      for (const slot of this.#loads.idleSlots((other) => !this.#isAwaited(other))) {
        this.#giveUp(slot);
        waiting.numLeft--;
      }
      this.#loads.cancelDead();
    }
    this.#settleIfDone();
  }

  #settleIfDone(): void {
    const waiting = this.#waiting;
    if (waiting === undefined || waiting.numLeft > 0) return;
    this.#waiting = undefined;
    if (waiting.failure === undefined) {
      waiting.resolve();
      return;
    }
    this.#epoch++;
    waiting.reject(loadError(this.#index, this.#itemName, waiting.failure, waiting.failedItems));
  }

  /** Ends the pending `ensure` with an error and drops its loads. */
  #abandon(error: unknown): void {
    const waiting = this.#waiting;
    if (waiting === undefined) return;
    this.#waiting = undefined;
    for (let slot = 0; slot < this.#table.numSlots; slot++) {
      if (this.#heldAt[slot] === this.#epoch && this.#loads.isLoading(slot)) this.#giveUp(slot);
    }
    this.#loads.cancelDead();
    this.#epoch++;
    waiting.reject(error);
  }

  /** Releases a slot whose item was being prefetched. */
  #drop(slot: number): void {
    this.#counters.prefetchesDropped++;
    this.#giveUp(slot);
  }

  #giveUp(slot: number): void {
    this.#prefetches.forget(slot);
    this.#heldAt[slot] = 0;
    this.#loads.unload(slot);
  }

  #isPinned(item: number): boolean {
    const slot = this.#table.slotOf[item];
    return slot >= 0 && this.#table.isPinned(slot);
  }

  #checkUsable(): void {
    if (this.#isClosed) throw new ReleasedError('neuron cache');
  }

  #tooMany(ids: Int32Array, count: number, fitting: number): CapacityError {
    const needed = new Set(ids.subarray(0, count).filter((item) => !this.#isPinned(item))).size;
    const available = this.#table.numSlots - this.#numPinned;
    return tooManyError({ layer: this.#index, itemName: this.#itemName, needed, available, fitting });
  }
}
