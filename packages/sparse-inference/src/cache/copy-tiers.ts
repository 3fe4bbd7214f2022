/** Copies of items in RAM: the warm tier, which changes with use, and the fixed 4-bit copy of the cold tier. */
import { invariant } from '@winnow/tensor';
import type { Activity } from './activity.js';
import { allocateBytes } from './allocate-bytes.js';
import type { ItemLayout } from './item-layout.js';
import { SlotTable } from './slot-table.js';

/** A tier from which slots are filled. */
export interface CopyTier {
  /** Converts one piece of the copy at `place` to the model's format. */
  decode(place: number, piece: number, out: Uint8Array, outOffset: number): void;
}

/**
 * A least-recently-used tier with places of one size. A place that is being filled or read is busy and cannot be
 * evicted.
 */
export class WarmTier implements CopyTier {
  readonly #table: SlotTable;
  readonly #layout: ItemLayout;
  readonly #bytes: Uint8Array;
  readonly #busy: Uint8Array;
  #isFixed = false;
  #numEvictions = 0;

  constructor(numSlots: number, numItems: number, layout: ItemLayout) {
    this.#table = new SlotTable(numSlots, numItems);
    this.#layout = layout;
    this.#bytes = allocateBytes('neuron cache: warm tier', numSlots * layout.warmBytes);
    this.#busy = new Uint8Array(numSlots);
  }

  get sizeBytes(): number {
    return this.#bytes.byteLength;
  }

  get numEvictions(): number {
    return this.#numEvictions;
  }

  /** Freezes the tier: it keeps its items and takes no others. */
  fix(): void {
    this.#isFixed = true;
  }

  /** Place of the item's copy, -1 if there is none or it is incomplete. */
  placeOf(item: number): number {
    const place = this.#table.slotOf[item];
    return place >= 0 && this.#busy[place] !== 1 ? place : -1;
  }

  touch(place: number): void {
    this.#table.touch(place);
  }

  /**
   * A place for an item that is being read, or -1: the least recently used copy is evicted if its item is in a slot or
   * is active less often. The place is busy until `finish` or `abandon`.
   */
  admit(item: number, activity: Activity, isInSlot: (item: number) => boolean): number {
    const table = this.#table;
    if (this.#isFixed || table.numSlots === 0 || table.slotOf[item] >= 0) return -1;
    if (table.numFree === 0) {
      let place = table.oldest;
      while (place !== table.numSlots && this.#busy[place] !== 0) place = table.newerThan(place);
      if (place === table.numSlots) return -1;
      const other = table.itemOf[place];
      if (!isInSlot(other) && activity.of(other) > activity.of(item)) {
        table.touch(place); // the next candidate is compared with another copy
        return -1;
      }
      table.release(place);
      this.#numEvictions++;
    }
    const place = table.assign(item);
    this.#busy[place] = 1;
    return place;
  }

  /** Reserves busy places for items at creation. */
  reserve(items: Int32Array): void {
    for (const item of items) this.#busy[this.#table.assign(item)] = 1;
  }

  /** The place of an item, busy or not; -1 if there is none. */
  reservedPlace(item: number): number {
    return this.#table.slotOf[item];
  }

  finishReserved(items: Int32Array): void {
    for (const item of items) if (this.#table.slotOf[item] >= 0) this.finish(this.#table.slotOf[item]);
  }

  /** Encodes one piece of the place's item. Returns false if it cannot be encoded. */
  encode(place: number, piece: number, bytes: Uint8Array): boolean {
    const { warm, warmOffset } = this.#layout.pieces[piece];
    return warm.encode(bytes, this.#bytes, place * this.#layout.warmBytes + warmOffset);
  }

  finish(place: number): void {
    this.#busy[place] = 0;
  }

  abandon(place: number): void {
    this.#busy[place] = 0;
    this.#table.release(place);
  }

  /** Keeps the copy in its place while it is being read, possibly by several readers. */
  hold(place: number): void {
    this.#busy[place] += 2;
  }

  letGo(place: number): void {
    this.#busy[place] -= 2;
  }

  decode(place: number, piece: number, out: Uint8Array, outOffset: number): void {
    const { warm, warmOffset } = this.#layout.pieces[piece];
    warm.decode(this.#bytes, place * this.#layout.warmBytes + warmOffset, out, outOffset);
  }

  checkIntegrity(): void {
    this.#table.checkIntegrity();
    for (const [place, busy] of this.#busy.entries()) {
      invariant(busy === 0 || this.#table.itemOf[place] >= 0, `busy warm place ${place} has an item`);
    }
  }

  /** Number of busy places, for checks. */
  get numBusy(): number {
    return this.#busy.reduce((sum, busy) => sum + (busy === 0 ? 0 : 1), 0);
  }
}

/** A 4-bit copy of every item without a better copy. */
export class ColdCopy implements CopyTier {
  readonly #layout: ItemLayout;
  readonly #placeOf: Int32Array;
  readonly #bytes: Uint8Array;

  /** @param its items; each is filled by `encode` before use */
  constructor(items: Int32Array, numItems: number, layout: ItemLayout) {
    this.#layout = layout;
    this.#placeOf = new Int32Array(numItems).fill(-1);
    for (const [place, item] of items.entries()) this.#placeOf[item] = place;
    this.#bytes = allocateBytes('neuron cache: 4-bit copy', items.length * layout.coldBytes);
  }

  /** Bytes of bookkeeping per item of the layer. */
  static readonly itemBytes: number = 4;

  get sizeBytes(): number {
    return this.#bytes.byteLength;
  }

  placeOf(item: number): number {
    return this.#placeOf[item];
  }

  encode(item: number, piece: number, bytes: Uint8Array): boolean {
    const { cold, coldOffset } = this.#layout.pieces[piece];
    return cold.encode(bytes, this.#bytes, this.#placeOf[item] * this.#layout.coldBytes + coldOffset);
  }

  decode(place: number, piece: number, out: Uint8Array, outOffset: number): void {
    const { cold, coldOffset } = this.#layout.pieces[piece];
    cold.decode(this.#bytes, place * this.#layout.coldBytes + coldOffset, out, outOffset);
  }
}
