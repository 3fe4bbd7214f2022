/** Maps positions to slots in the cache of a layer: in order, or in a ring that keeps the first and the last ones. */
import { ArgumentError, CapacityError } from '@winnow/tensor';

export interface SlotMapOptions {
  /** Number of slots. */
  readonly capacity: number;
  /** A ring: the first positions stay, and the others cycle through the remaining slots. */
  readonly ring?: { readonly sinks: number; readonly window: number } | undefined;
}

/** Position p of a ring with s sinks lies in slot `s + (p - s) % (capacity - s)`. */
export class SlotMap {
  readonly #capacity: number;
  readonly #ring: SlotMapOptions['ring'];
  #length = 0;
  #numWritten = 0; // maximum number of positions so far, which determines what the ring has overwritten

  constructor({ capacity, ring }: SlotMapOptions) {
    this.#capacity = capacity;
    this.#ring = ring;
  }

  /** Number of positions. */
  get length(): number {
    return this.#length;
  }

  /** Number of filled slots. */
  get numSlots(): number {
    return Math.min(this.#ring === undefined ? this.#length : this.#numWritten, this.#capacity);
  }

  slotOf(position: number): number {
    const sinks = this.#ring?.sinks ?? position + 1;
    return position < sinks ? position : sinks + ((position - sinks) % (this.#capacity - sinks));
  }

  /** @throws {CapacityError} when that many more positions do not fit */
  checkAppend(numTokens: number): void {
    const needed = this.#length + numTokens;
    if (this.#ring !== undefined || needed <= this.#capacity) return;
    throw new CapacityError({ resource: 'attention layer', needed, available: this.#capacity, unit: 'tokens' });
  }

  /** @throws {CapacityError} when the positions do not fit; then nothing changes */
  append(numTokens: number): void {
    this.checkAppend(numTokens);
    this.#length += numTokens;
    this.#numWritten = Math.max(this.#numWritten, this.#length);
  }

  /** @throws {ArgumentError} when a query at `position` would attend to positions that the ring has overwritten */
  checkReadable(position: number): void {
    if (this.#ring === undefined || !this.#isLost(position, position + 1, this.#ring)) return;
    const expected = 'a query whose window the ring still holds';
    throw new ArgumentError({ argument: 'attend', expected, actual: `position ${position}` });
  }

  /**
   * Forgets positions from `length` on. @throws {ArgumentError} for a length that was never reached or cannot be
   * restored
   */
  truncate(length: number): void {
    const isLost = this.#ring !== undefined && length < this.#length && this.#isLost(length, length, this.#ring);
    if (!Number.isSafeInteger(length) || length < 0 || length > this.#length || isLost) {
      const expected = isLost ? `${this.#length}, since the ring has overwritten older tokens` : `0 to ${this.#length}`;
      throw new ArgumentError({ argument: 'truncate', expected, actual: String(length) });
    }
    this.#length = length;
  }

  /** Whether the ring has overwritten keys before position `end` that a query at position `query` attends to. */
  #isLost(query: number, end: number, { sinks, window }: { readonly sinks: number; readonly window: number }): boolean {
    const firstKept = this.#numWritten - (this.#capacity - sinks);
    const firstSeen = Math.max(sinks, query - window + 1);
    return firstSeen < end && firstKept > firstSeen;
  }
}
