/** Where positions lie in the cache of a layer: one after the other, or in a ring that keeps the first and the last ones. */
import { ArgumentError, CapacityError } from '@winnow/tensor';

export interface SlotMapOptions {
  /** Slots that there are. */
  readonly capacity: number;
  /** A ring: its first positions stay, and the others take turns in the remaining slots. */
  readonly ring?: { readonly sinks: number; readonly window: number } | undefined;
}

/** Position p of a ring with s sinks lies in slot `s + (p - s) % (capacity - s)`. */
export class SlotMap {
  readonly #capacity: number;
  readonly #ring: SlotMapOptions['ring'];
  #length = 0;
  #numWritten = 0; // the most positions that there ever were: what a ring has overwritten depends on it

  constructor({ capacity, ring }: SlotMapOptions) {
    this.#capacity = capacity;
    this.#ring = ring;
  }

  /** Positions so far. */
  get length(): number {
    return this.#length;
  }

  /** Slots that hold something. */
  get numSlots(): number {
    return Math.min(this.#ring === undefined ? this.#length : this.#numWritten, this.#capacity);
  }

  slotOf(position: number): number {
    const sinks = this.#ring?.sinks ?? position + 1;
    return position < sinks ? position : sinks + ((position - sinks) % (this.#capacity - sinks));
  }

  /** @throws {CapacityError} when so many more positions do not fit */
  checkAppend(numTokens: number): void {
    const needed = this.#length + numTokens;
    if (this.#ring !== undefined || needed <= this.#capacity) return;
    throw new CapacityError({ resource: 'attention layer', needed, available: this.#capacity, unit: 'tokens' });
  }

  /** @throws {CapacityError} when the positions do not fit; nothing changes then */
  append(numTokens: number): void {
    this.checkAppend(numTokens);
    this.#length += numTokens;
    this.#numWritten = Math.max(this.#numWritten, this.#length);
  }

  /** @throws {ArgumentError} when a query at `position` would see positions that the ring has overwritten */
  checkReadable(position: number): void {
    if (this.#ring === undefined || !this.#isLost(position, position + 1, this.#ring)) return;
    const expected = 'a query whose window the ring still holds';
    throw new ArgumentError({ argument: 'attend', expected, actual: `position ${position}` });
  }

  /** Forgets positions from `length` on. @throws {ArgumentError} for a length that there was not, or not any more */
  truncate(length: number): void {
    const isLost = this.#ring !== undefined && length < this.#length && this.#isLost(length, length, this.#ring);
    if (!Number.isSafeInteger(length) || length < 0 || length > this.#length || isLost) {
      const expected = isLost ? `${this.#length}, the ring has forgotten older tokens` : `0 to ${this.#length}`;
      throw new ArgumentError({ argument: 'truncate', expected, actual: String(length) });
    }
    this.#length = length;
  }

  /** Whether the ring has overwritten keys before position `end` that a query at position `query` sees. */
  #isLost(query: number, end: number, { sinks, window }: { readonly sinks: number; readonly window: number }): boolean {
    const firstKept = this.#numWritten - (this.#capacity - sinks);
    const firstSeen = Math.max(sinks, query - window + 1);
    return firstSeen < end && firstKept > firstSeen;
  }
}
