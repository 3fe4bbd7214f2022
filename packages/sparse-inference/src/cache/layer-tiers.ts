/**
 * One layer of the neuron cache: which items are in its slots, which have to leave, and who waits for what.
 * Within the slots the least recently used item leaves first; pinned ones never, and those that an `ensure` holds not
 * before the next one. `layer-tiers.test.ts` and the model test show the rules at work.
 */
import { ArgumentError, CapacityError, invariant, ReleasedError } from '@winnow/tensor';
import { Activity } from './activity.js';
import { WarmTier, type ColdCopy } from './copy-tiers.js';
import type { ItemLayout } from './item-layout.js';
import { createCounters, statisticsOf, type LayerCounters } from './layer-counters.js';
import { NeuronLoadError } from './load-error.js';
import type { ReadQueue } from './read-queue.js';
import { SlotLoads, type LoadFailure } from './slot-loads.js';
import { SlotTable } from './slot-table.js';
import type { NeuronLayer, NeuronLayerStatistics, SlotMemory } from './types.js';

export interface LayerTiersOptions {
  readonly index: number;
  readonly layer: NeuronLayer;
  readonly layout: ItemLayout;
  readonly memories: readonly SlotMemory[];
  readonly queue: ReadQueue;
  readonly maxReadBytes: number;
  readonly maxGapBytes: number;
  readonly itemName: string;
  readonly verify: ((piece: number, item: number, bytes: Uint8Array) => boolean) | undefined;
}

/** An `ensure` under way. */
interface Waiting {
  /** Held slots that still wait. */
  numLeft: number;
  failure: LoadFailure | undefined;
  readonly failedItems: number[];
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  stopListening: () => void;
}

const done: Promise<void> = Promise.resolve();
const nothing = (): void => undefined;

export class LayerTiers {
  readonly warm: WarmTier;
  readonly layout: ItemLayout;
  readonly numItems: number;
  readonly #index: number;
  readonly #itemName: string;
  readonly #activity: Activity;
  readonly #table: SlotTable;
  readonly #loads: SlotLoads;
  readonly #counters: LayerCounters = createCounters();
  /** The 4-bit copy, once there is one. */
  cold: ColdCopy | undefined;
  #numPinned = 0;
  /** Slots whose number is that of the current `ensure` are held. */
  readonly #heldAt: Int32Array;
  #epoch = 1;
  /** Slots that a prefetch brought and nobody has asked for since. */
  readonly #isAhead: Uint8Array;
  /** Items of the ids at hand: those with the number of the current step. */
  readonly #mark: Int32Array;
  #markStep = 0;
  readonly #missing: Int32Array;
  /** Where the search for a slot to give up goes on, and whether it has come to those that are being loaded ahead. */
  #cursor = 0;
  #takesLoading = false;
  #waiting: Waiting | undefined;
  #isWaitingForWrites = false;
  #isPinning = false;
  readonly #stopListening: (() => void)[] = [];
  #isClosed = false;

  constructor(options: LayerTiersOptions) {
    const { index, layer, layout, memories, queue, maxReadBytes, maxGapBytes, itemName, verify } = options;
    const { numItems, slots, warmSlots = 0, frequencies } = layer;
    this.layout = layout;
    this.numItems = numItems;
    this.#index = index;
    this.#itemName = itemName;
    this.#activity = new Activity(numItems, frequencies);
    this.#table = new SlotTable(slots, numItems);
    this.warm = new WarmTier(warmSlots, numItems, layout);
    this.#heldAt = new Int32Array(slots);
    this.#isAhead = new Uint8Array(slots);
    this.#mark = new Int32Array(numItems);
    this.#missing = new Int32Array(Math.min(slots, numItems));
    this.#loads = new SlotLoads({
      queue,
      layout,
      memories,
      table: this.#table,
      warm: this.warm,
      maxReadBytes,
      maxGapBytes,
      verify,
      onLoaded: (slot) => this.#loaded(slot),
      onFailed: (slots, failure) => this.#failed(slots, failure),
    });
  }

  /** Bytes of the bookkeeping of a layer of this size. */
  static bookkeepingBytes(numItems: number, slots: number, warmSlots: number): number {
    const ofItem = Activity.itemBytes + 4;
    const ofSlot = SlotLoads.slotBytes + 4 + 1 + 4;
    const tables = SlotTable.sizeBytes(slots, numItems) + SlotTable.sizeBytes(warmSlots, numItems);
    return tables + numItems * ofItem + slots * ofSlot + warmSlots;
  }

  /** Loads items into slots that they keep. */
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
    this.#checkIds(ids, begin, end);
    const available = this.#table.numSlots - this.#numPinned;
    const step = ++this.#markStep;
    let numTaken = 0;
    for (let index = begin; index < end; index++) {
      const item = ids[index];
      if (this.#mark[item] === step || this.#isPinned(item)) continue;
      this.#mark[item] = step;
      if (++numTaken > available) return index - begin;
    }
    return end - begin;
  }

  ensure(ids: Int32Array, count: number, rowsOut: Int32Array, signal: AbortSignal | undefined): Promise<void> {
    this.#checkUsable();
    if (this.#waiting !== undefined || this.#isWaitingForWrites) throw this.#busy('one ensure at a time');
    const fitting = this.fit(ids, 0, count);
    if (rowsOut.length < count) {
      throw new ArgumentError({ argument: 'rowsOut', expected: `room for ${count}`, actual: String(rowsOut.length) });
    }
    if (fitting < count) throw this.#tooMany(ids, count, fitting);
    signal?.throwIfAborted();
    if (this.#loads.isWriting) this.#dropOthers(ids, count);
    return this.#loads.isLeaving
      ? this.#beginLater(ids, count, rowsOut, signal)
      : this.#begin(ids, count, rowsOut, signal);
  }

  /** Begins when the backend no longer writes into slots that were given up, so that all slots can be counted on. */
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
    if (this.#waiting !== undefined || this.#isWaitingForWrites) throw this.#busy('no ensure under way');
    this.#epoch++;
  }

  prefetch(ids: Int32Array, count: number, signal: AbortSignal | undefined): void {
    this.#checkUsable();
    this.#checkIds(ids, 0, count);
    if (signal?.aborted === true) return;
    this.#forgetSignals();
    if (this.#isWaitingForWrites) {
      this.#counters.prefetchesRefused += count;
      return;
    }
    const table = this.#table;
    const counters = this.#counters;
    const step = ++this.#markStep;
    let numWanted = 0;
    for (let index = 0; index < count; index++) {
      const item = ids[index];
      if (this.#mark[item] === step) continue;
      this.#mark[item] = step;
      if (table.slotOf[item] >= 0) table.touch(table.slotOf[item]);
      else numWanted++;
    }
    if (numWanted === 0) return;
    this.#startSearch();
    const items = new Int32Array(numWanted);
    let numItems = 0;
    for (let index = 0; index < count; index++) {
      const item = ids[index];
      if (table.slotOf[item] >= 0) continue;
      if (!this.#takeSlot(false)) {
        counters.prefetchesRefused += numWanted - numItems;
        break;
      }
      items[numItems++] = item;
      this.#isAhead[table.assign(item)] = 1;
    }
    if (numItems === 0) return;
    counters.prefetches += numItems;
    const taken = items.subarray(0, numItems).sort();
    this.#load(taken, false);
    if (signal !== undefined) this.#dropOn(signal, taken);
  }

  cancelPrefetch(): void {
    for (let slot = 0; slot < this.#table.numSlots; slot++) {
      if (this.#loads.isLoading(slot) && !this.#isAwaited(slot)) this.#drop(slot);
    }
    this.#loads.cancelDead();
  }

  tierOf(item: number): 'hot' | 'warm' | 'cold' {
    this.#checkIds(Int32Array.of(item), 0, 1);
    const slot = this.#table.slotOf[item];
    if (slot >= 0 && !this.#loads.isLoading(slot)) return 'hot';
    return this.warm.placeOf(item) >= 0 ? 'warm' : 'cold';
  }

  statistics(): NeuronLayerStatistics {
    return statisticsOf(this.#counters, this.warm.numEvictions);
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
    this.cancelPrefetch();
    for (const stop of this.#stopListening.splice(0)) stop();
    while (this.#loads.isWriting) await this.#loads.nextWrite();
  }

  #begin(ids: Int32Array, count: number, rowsOut: Int32Array, signal: AbortSignal | undefined): Promise<void> {
    const table = this.#table;
    const loads = this.#loads;
    const counters = this.#counters;
    this.#forgetSignals();
    const epoch = ++this.#epoch;
    const step = ++this.#markStep;
    this.#activity.advance();
    let numMissing = 0;
    let numLoading = 0;
    for (let index = 0; index < count; index++) {
      const item = ids[index];
      const slot = table.slotOf[item];
      if (this.#mark[item] !== step) {
        this.#mark[item] = step;
        this.#activity.observe(item);
        counters.requests++;
        if (slot < 0) {
          this.#missing[numMissing++] = item;
          continue;
        }
        counters.hits++;
        if (this.#isAhead[slot] === 1) {
          this.#isAhead[slot] = 0;
          counters.prefetchHits++;
        }
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
    return numLeft === 0 ? done : this.#wait(numLeft, signal);
  }

  /** Gives slots to the items in `#missing` and starts to load them. Returns how many are on their way then. */
  #loadMissing(numMissing: number): number {
    const items = this.#missing.slice(0, numMissing).sort();
    this.#startSearch();
    for (const item of items) {
      invariant(this.#takeSlot(true), 'an ensure that fits finds its slots');
      this.#heldAt[this.#table.assign(item)] = this.#epoch;
    }
    this.#loads.cancelDead();
    this.#load(items, true);
    let numLoading = 0;
    for (const item of items) if (this.#loads.isLoading(this.#table.slotOf[item])) numLoading++;
    return numLoading;
  }

  /** Loads items that have been given slots: from the warm tier, the 4-bit copy, or the sources. */
  #load(items: Int32Array, isWanted: boolean): void {
    const { warm, cold } = this;
    const slotOf = this.#table.slotOf;
    const warmItems = items.filter((item) => warm.placeOf(item) >= 0);
    if (warmItems.length > 0) {
      const places = warmItems.map((item) => warm.placeOf(item));
      for (const place of places) {
        warm.touch(place);
        warm.hold(place);
      }
      const slots = warmItems.map((item) => slotOf[item]);
      this.#loads.fill(warm, places, slots, (place) => warm.letGo(place));
    }
    const numCold = items.length - warmItems.length;
    if (isWanted) {
      this.#counters.warmHits += warmItems.length;
      this.#counters.coldReads += numCold;
    }
    if (numCold === 0) return;
    const isOfWarm = new Set(warmItems);
    const coldItems = numCold === items.length ? items : items.filter((item) => !isOfWarm.has(item));
    const slots = coldItems.map((item) => slotOf[item]);
    if (cold !== undefined) {
      this.#loads.fill(
        cold,
        coldItems.map((item) => cold.placeOf(item)),
        slots,
        nothing,
      );
      return;
    }
    const isInSlot = (item: number): boolean => slotOf[item] >= 0;
    // pinned items need no second copy
    const warmPlaces = coldItems.map((item) => (this.#isPinning ? -1 : warm.admit(item, this.#activity, isInSlot)));
    this.#loads.read(coldItems, slots, warmPlaces, isWanted);
  }

  #startSearch(): void {
    this.#cursor = this.#table.oldest;
    this.#takesLoading = false;
  }

  /** Frees a slot unless one is free. False when all are held, or marked, or (without `isWanted`) being loaded. */
  #takeSlot(isWanted: boolean): boolean {
    const table = this.#table;
    if (table.numFree > 0) return true;
    for (;;) {
      const slot = this.#cursor;
      if (slot === table.numSlots) {
        if (!isWanted || this.#takesLoading) return false;
        this.#takesLoading = true;
        this.#cursor = table.oldest;
        continue;
      }
      this.#cursor = table.newerThan(slot);
      if (this.#heldAt[slot] === this.#epoch || (!isWanted && this.#mark[table.itemOf[slot]] === this.#markStep))
        continue;
      const isLoading = this.#loads.isLoading(slot);
      if (isLoading !== this.#takesLoading || this.#loads.isBusy(slot)) continue;
      if (isLoading) {
        this.#drop(slot);
      } else {
        this.#counters.evictions++;
        this.#giveUp(slot);
      }
      return true;
    }
  }

  /** What waits in the queue and is not needed by this `ensure` is dropped; what is needed goes first. */
  #sortOutReads(isLoading: boolean): void {
    const isHeld = (slot: number): boolean => this.#heldAt[slot] === this.#epoch;
    if (isLoading) this.#loads.raise(isHeld);
    for (const slot of this.#loads.idleSlots(isHeld)) this.#drop(slot);
    this.#loads.cancelDead();
  }

  /** Drops what is being prefetched and is not among the ids. */
  #dropOthers(ids: Int32Array, count: number): void {
    const step = ++this.#markStep;
    for (let index = 0; index < count; index++) this.#mark[ids[index]] = step;
    for (let slot = 0; slot < this.#table.numSlots; slot++) {
      if (this.#loads.isLoading(slot) && this.#mark[this.#table.itemOf[slot]] !== step) this.#drop(slot);
    }
    this.#loads.cancelDead();
  }

  #wait(numLeft: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      const stop = (): void => this.#abandon(signal?.reason);
      signal?.addEventListener('abort', stop, { once: true });
      const stopListening = (): void => signal?.removeEventListener('abort', stop);
      this.#waiting = { numLeft, failure: undefined, failedItems: [], resolve, reject, stopListening };
    });
  }

  #isAwaited(slot: number): boolean {
    return this.#waiting !== undefined && this.#heldAt[slot] === this.#epoch;
  }

  #loaded(slot: number): void {
    if (!this.#isAwaited(slot)) return;
    (this.#waiting as Waiting).numLeft--;
    this.#settleIfDone();
  }

  #failed(slots: readonly number[], failure: LoadFailure): void {
    const waiting = this.#waiting;
    const isFirst = waiting?.failure === undefined;
    for (const slot of slots) {
      if (waiting !== undefined && this.#isAwaited(slot)) {
        waiting.failure ??= failure;
        waiting.failedItems.push(this.#table.itemOf[slot]);
        waiting.numLeft--;
      }
      this.#giveUp(slot);
    }
    if (waiting?.failure === undefined) return;
    if (isFirst) {
      // the others are of no use without these: what has not begun is dropped
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
    waiting.stopListening();
    if (waiting.failure === undefined) {
      waiting.resolve();
      return;
    }
    this.#epoch++;
    waiting.reject(this.#loadError(waiting.failure, waiting.failedItems));
  }

  /** Ends the `ensure` under way with an error: all that it waits for is dropped. */
  #abandon(error: unknown): void {
    const waiting = this.#waiting;
    if (waiting === undefined) return;
    this.#waiting = undefined;
    for (let slot = 0; slot < this.#table.numSlots; slot++) {
      if (this.#heldAt[slot] === this.#epoch && this.#loads.isLoading(slot)) this.#giveUp(slot);
    }
    this.#loads.cancelDead();
    this.#epoch++;
    waiting.stopListening();
    waiting.reject(error);
  }

  /** Gives up the slots of items that are still on their way when the signal fires, unless an `ensure` waits for them. */
  #dropOn(signal: AbortSignal, items: Int32Array): void {
    const slots = items.map((item) => this.#table.slotOf[item]);
    const tokens = slots.map((slot) => this.#loads.tokenOf(slot));
    const drop = (): void => {
      for (const [index, slot] of slots.entries()) {
        if (this.#loads.tokenOf(slot) !== tokens[index]) continue;
        if (this.#loads.isLoading(slot) && !this.#isAwaited(slot)) this.#drop(slot);
      }
      this.#loads.cancelDead();
    };
    signal.addEventListener('abort', drop, { once: true });
    this.#stopListening.push(() => signal.removeEventListener('abort', drop));
  }

  /** When nothing is on its way, no signal of a prefetch has anything to drop. */
  #forgetSignals(): void {
    if (this.#stopListening.length === 0 || this.#loads.hasReads || this.#loads.isWriting) return;
    for (const stop of this.#stopListening.splice(0)) stop();
  }

  /** Gives up a slot whose item was being prefetched. */
  #drop(slot: number): void {
    this.#counters.prefetchesDropped++;
    this.#giveUp(slot);
  }

  #giveUp(slot: number): void {
    this.#isAhead[slot] = 0;
    this.#heldAt[slot] = 0;
    this.#loads.unload(slot);
  }

  #isPinned(item: number): boolean {
    const slot = this.#table.slotOf[item];
    return slot >= 0 && this.#table.isPinned(slot);
  }

  #loadError(failure: LoadFailure, failedItems: readonly number[]): NeuronLoadError {
    const { source, byteOffset, piece, cause } = failure;
    const message = cause instanceof Error ? cause.message : String(cause);
    const items = failedItems.toSorted((a, b) => a - b);
    const fields = { source, byteOffset, layer: this.#index, piece, itemName: this.#itemName, items, message };
    return new NeuronLoadError(fields, { cause });
  }

  #checkUsable(): void {
    if (this.#isClosed) throw new ReleasedError('neuron cache');
  }

  #checkIds(ids: Int32Array, begin: number, end: number): void {
    if (!(Number.isInteger(begin) && Number.isInteger(end) && begin >= 0 && end >= begin && end <= ids.length)) {
      const expected = `a range within [0, ${ids.length})`;
      throw new ArgumentError({ argument: 'ids', expected, actual: `[${begin}, ${end})` });
    }
    for (let index = begin; index < end; index++) {
      const item = ids[index];
      if (item >= 0 && item < this.numItems) continue;
      const expected = `0 to ${this.numItems - 1} in layer ${this.#index}`;
      throw new ArgumentError({ argument: `ids[${index}]`, expected, actual: String(item) });
    }
  }

  #busy(expected: string): ArgumentError {
    return new ArgumentError({ argument: `layer ${this.#index}`, expected, actual: 'one that has not ended' });
  }

  #tooMany(ids: Int32Array, count: number, fitting: number): CapacityError {
    const needed = new Set(ids.subarray(0, count).filter((item) => !this.#isPinned(item))).size;
    return new CapacityError({
      resource: `neuron cache: layer ${this.#index}: slots for ${this.#itemName}s at a time`,
      needed,
      available: this.#table.numSlots - this.#numPinned,
      unit: 'slots',
      hint: `the first ${fitting} ids fit`,
    });
  }
}
