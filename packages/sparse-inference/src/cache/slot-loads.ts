/**
 * Loads items into the slots of one layer, from copies in RAM or by reads of the sources, and tracks pending loads. A
 * load is identified by its slot's token: when the slot is released, the token changes, and late data is ignored. A
 * slot into which the backend still writes is neither free nor taken until the write has ended.
 */
import { invariant } from '@winnow/tensor';
import type { CopyTier, WarmTier } from './copy-tiers.js';
import { planReads, type ItemLayout, type PieceGroup, type ReadLimits } from './item-layout.js';
import type { ReadJob, ReadQueue } from './read-queue.js';
import type { SlotTable } from './slot-table.js';

/** The memory of the slots of one piece: slot `s` is at `s * (bytes of an item)`. */
export interface SlotMemory {
  /** The memory if JavaScript can access it, requested for each load; either always or never defined. */
  view(): Uint8Array | undefined;
  /** Used if there is no view. `bytes` may change once the promise is settled. */
  write(byteOffset: number, bytes: Uint8Array): Promise<void>;
}

/** What went wrong with items of one read. */
export interface LoadFailure {
  readonly source: string;
  readonly byteOffset: number;
  readonly piece: string;
  readonly cause: unknown;
}

/** Where the items of a layer come from and go to. */
export interface LoadPaths {
  readonly queue: ReadQueue;
  readonly layout: ItemLayout;
  readonly memories: readonly SlotMemory[];
  readonly reads: ReadLimits;
  readonly verify: ((piece: number, item: number, bytes: Uint8Array) => boolean) | undefined;
}

export interface SlotLoadsOptions {
  readonly table: SlotTable;
  readonly warm: WarmTier;
  /** Called when a slot has its item, but not for slots that are filled synchronously. */
  readonly onLoaded: (slot: number) => void;
  /** Called when loads fail. The slots still belong to their items during the call, which must release them. */
  readonly onFailed: (slots: readonly number[], failure: LoadFailure) => void;
}

interface Batch {
  readonly items: Int32Array;
  readonly slots: Int32Array;
  readonly tokens: Int32Array;
}

class ItemRead implements ReadJob {
  readonly batch: Batch;
  readonly group: PieceGroup;
  readonly from: number;
  readonly to: number;
  readonly byteOffset: number;
  readonly sizeBytes: number;
  isWanted: boolean;
  readonly #loads: SlotLoads;

  constructor(loads: SlotLoads, batch: Batch, group: PieceGroup, from: number, to: number, isWanted: boolean) {
    this.#loads = loads;
    this.batch = batch;
    this.group = group;
    this.from = from;
    this.to = to;
    this.isWanted = isWanted;
    const { items } = batch;
    this.byteOffset = group.byteOffset + items[from] * group.strideBytes;
    this.sizeBytes = (items[to - 1] - items[from]) * group.strideBytes + group.spanBytes;
  }

  get source(): PieceGroup['source'] {
    return this.group.source;
  }

  isAlive(): boolean {
    for (let index = this.from; index < this.to; index++) if (this.#loads.isCurrent(this.batch, index)) return true;
    return false;
  }

  onBytes(bytes: Uint8Array): void | Promise<void> {
    return this.#loads.accept(this, bytes);
  }

  onError(error: unknown): void {
    this.#loads.fail(this, error);
  }

  onEnd(): void {
    this.#loads.end(this);
  }
}

export class SlotLoads {
  readonly #paths: LoadPaths;
  readonly #options: SlotLoadsOptions;
  readonly #table: SlotTable;
  /** Number of pieces that each slot still waits for. */
  readonly #pending: Uint32Array;
  /** Number of pending backend writes into each slot. */
  readonly #writing: Uint32Array;
  readonly #token: Int32Array;
  /** Place in the warm tier that the load also fills, or -1. */
  readonly #warmPlace: Int32Array;
  readonly #reads = new Set<ItemRead>();
  readonly #waiters: (() => void)[] = [];
  #numWriting = 0;
  /** Number of released slots that are still being written to. */
  #numLeaving = 0;
  /** Number of pending fills, each one write after the other. */
  #numFilling = 0;
  #usefulBytes = 0;

  constructor(paths: LoadPaths, options: SlotLoadsOptions) {
    this.#paths = paths;
    this.#options = options;
    this.#table = options.table;
    const { numSlots } = options.table;
    this.#pending = new Uint32Array(numSlots);
    this.#writing = new Uint32Array(numSlots);
    this.#token = new Int32Array(numSlots);
    this.#warmPlace = new Int32Array(numSlots).fill(-1);
  }

  /** Bytes per slot. */
  static readonly slotBytes: number = 16;

  get usefulBytes(): number {
    return this.#usefulBytes;
  }

  get hasReads(): boolean {
    return this.#reads.size > 0;
  }

  /** Whether no loads are pending. */
  get isIdle(): boolean {
    return this.#reads.size === 0 && this.#numWriting === 0 && this.#numFilling === 0;
  }

  get isWriting(): boolean {
    return this.#numWriting > 0;
  }

  isLoading(slot: number): boolean {
    return this.#pending[slot] > 0;
  }

  /** Whether the backend is writing into the slot, so that its memory cannot be reused yet. */
  isBusy(slot: number): boolean {
    return this.#writing[slot] > 0;
  }

  /** Whether released slots are still being written to, so that not all slots are available. */
  get isLeaving(): boolean {
    return this.#numLeaving > 0;
  }

  /** Waits until a write ends. */
  async nextWrite(): Promise<void> {
    await new Promise<void>((resolve) => this.#waiters.push(resolve));
  }

  /** Reads ascending items into their slots, and also fills `warmPlaces`. */
  read(items: Int32Array, slots: Int32Array, warmPlaces: Int32Array, isWanted: boolean): void {
    const { layout, queue, reads } = this.#paths;
    const tokens = slots.map((slot, index) => {
      this.#pending[slot] = layout.groups.length;
      this.#warmPlace[slot] = warmPlaces[index];
      return this.#token[slot];
    });
    const batch = { items, slots, tokens };
    for (const group of layout.groups) {
      planReads(group, items, reads, (from, to) => {
        const read = new ItemRead(this, batch, group, from, to, isWanted);
        this.#reads.add(read);
        queue.submit(read);
      });
    }
  }

  /**
   * Fills slots from copies: synchronously if the memory is accessible, else one after the other. `onDone` ends each
   * copy's use.
   */
  fill(tier: CopyTier, places: Int32Array, slots: Int32Array, onDone: (place: number) => void): void {
    const { layout, memories } = this.#paths;
    const views = memories.map((memory) => memory.view());
    const tokens = slots.map((slot) => this.#token[slot]);
    if (views[0] === undefined) {
      for (const slot of slots) this.#pending[slot] = 1;
      void this.#fillByWrites(tier, places, slots, tokens, onDone);
      return;
    }
    for (let index = 0; index < slots.length; index++) {
      const place = places[index];
      for (const { index: piece, itemBytes } of layout.pieces) {
        tier.decode(place, piece, views[piece] as Uint8Array, slots[index] * itemBytes);
      }
      onDone(place);
    }
  }

  async #fillByWrites(
    tier: CopyTier,
    places: Int32Array,
    slots: Int32Array,
    tokens: Int32Array,
    onDone: (place: number) => void,
  ): Promise<void> {
    const { layout, memories } = this.#paths;
    const { onFailed } = this.#options;
    const buffers = layout.pieces.map(({ itemBytes }) => new Uint8Array(itemBytes));
    this.#numFilling++;
    for (let index = 0; index < slots.length; index++) {
      const slot = slots[index];
      if (this.#token[slot] !== tokens[index]) {
        onDone(places[index]);
        continue;
      }
      for (const { index: piece } of layout.pieces) tier.decode(places[index], piece, buffers[piece], 0);
      onDone(places[index]);
      const writes = layout.pieces.map(({ index: piece, itemBytes }) =>
        memories[piece].write(slot * itemBytes, buffers[piece]),
      );
      const { name } = layout.pieces[0];
      await this.#writes(slot, tokens[index], writes, (cause) =>
        onFailed([slot], { source: 'slot memory', byteOffset: slot * layout.pieces[0].itemBytes, piece: name, cause }),
      );
    }
    this.#numFilling--;
  }

  /** Releases the slot: its item is gone, and late data is ignored. */
  unload(slot: number): void {
    this.#token[slot]++;
    this.#pending[slot] = 0;
    const place = this.#warmPlace[slot];
    if (place >= 0) {
      this.#warmPlace[slot] = -1;
      this.#options.warm.abandon(place);
    }
    this.#table.detach(slot);
    if (this.#writing[slot] === 0) this.#table.addFree(slot);
    else this.#numLeaving++;
  }

  /** Gives priority to reads with a slot that `isNeeded` accepts. */
  raise(isNeeded: (slot: number) => boolean): void {
    for (const read of this.#reads) {
      const { batch, from, to } = read;
      for (let index = from; index < to; index++) {
        if (!this.isCurrent(batch, index) || !isNeeded(batch.slots[index])) continue;
        this.#paths.queue.raise(read);
        break;
      }
    }
  }

  /** Slots that wait only for reads that have not begun and have no slot that `isNeeded` accepts. */
  idleSlots(isNeeded: (slot: number) => boolean): Set<number> {
    const found = new Set<number>();
    for (const { batch, from, to } of this.#queuedReads()) {
      for (let index = from; index < to; index++) {
        if (this.isCurrent(batch, index) && !isNeeded(batch.slots[index])) found.add(batch.slots[index]);
      }
    }
    return found;
  }

  /** Drops reads that are no longer needed. */
  cancelDead(): void {
    for (const read of [...this.#reads]) if (!read.isAlive()) this.#paths.queue.cancel(read);
  }

  isCurrent({ slots, tokens }: Batch, index: number): boolean {
    return this.#token[slots[index]] === tokens[index];
  }

  /** The token of a slot's load; a different one later means that the slot was released. */
  tokenOf(slot: number): number {
    return this.#token[slot];
  }

  accept(read: ItemRead, bytes: Uint8Array): void | Promise<void> {
    const { memories, layout, verify } = this.#paths;
    const { onFailed } = this.#options;
    const { batch, group, from, to } = read;
    const views = memories.map((memory) => memory.view());
    const writes: Promise<void>[] = [];
    for (let index = from; index < to; index++) {
      if (!this.isCurrent(batch, index)) continue;
      const slot = batch.slots[index];
      const start = (batch.items[index] - batch.items[from]) * group.strideBytes;
      const own: Promise<void>[] = [];
      let damaged: LoadFailure | undefined;
      for (const [at, { index: piece, name, itemBytes }] of group.pieces.entries()) {
        const begin = start + group.offsets[at];
        const part = bytes.subarray(begin, begin + itemBytes);
        this.#usefulBytes += itemBytes;
        if (verify?.(piece, batch.items[index], part) === false) {
          const cause = new Error('is damaged: its bytes differ from the expected ones');
          damaged = { source: group.source.name, byteOffset: read.byteOffset + begin, piece: name, cause };
          break;
        }
        this.#keepWarm(slot, piece, part);
        const view = views[piece];
        if (view !== undefined) view.set(part, slot * itemBytes);
        else own.push(memories[piece].write(slot * itemBytes, part));
      }
      if (own.length > 0) {
        // also for a damaged item: the slot is busy until the writes of its other pieces have ended
        const { name } = layout.pieces[group.pieces[0].index];
        const failure = { source: 'slot memory', byteOffset: slot * group.pieces[0].itemBytes, piece: name };
        writes.push(this.#writes(slot, batch.tokens[index], own, (cause) => onFailed([slot], { ...failure, cause })));
      }
      if (damaged !== undefined) onFailed([slot], damaged);
      else if (own.length === 0) this.#arrived(slot);
    }
    return writes.length === 0 ? undefined : Promise.all(writes).then(() => undefined);
  }

  fail(read: ItemRead, cause: unknown): void {
    const { batch, group, from, to, byteOffset } = read;
    const piece = group.pieces.map(({ name }) => name).join(', ');
    const slots: number[] = [];
    for (let index = from; index < to; index++) if (this.isCurrent(batch, index)) slots.push(batch.slots[index]);
    if (slots.length > 0) this.#options.onFailed(slots, { source: group.source.name, byteOffset, piece, cause });
  }

  end(read: ItemRead): void {
    this.#reads.delete(read);
  }

  checkIntegrity(): void {
    let numWriting = 0;
    let numLeaving = 0;
    for (let slot = 0; slot < this.#table.numSlots; slot++) {
      numWriting += this.#writing[slot];
      const isTaken = this.#table.itemOf[slot] >= 0;
      if (!isTaken && this.#writing[slot] > 0) numLeaving++;
      invariant(isTaken || this.#pending[slot] === 0, `slot ${slot} without an item waits for nothing`);
      invariant(this.#pending[slot] > 0 || this.#warmPlace[slot] < 0, `slot ${slot} fills no warm place when loaded`);
    }
    invariant(numWriting === this.#numWriting, 'as many writes as slots are written to');
    invariant(numLeaving === this.#numLeaving, 'as many slots are given up as are written to without an item');
    this.#table.checkIntegrity((slot) => this.#writing[slot] > 0);
  }

  *#queuedReads(): Iterable<ItemRead> {
    for (const read of this.#reads) if (this.#paths.queue.isQueued(read)) yield read;
  }

  #keepWarm(slot: number, piece: number, part: Uint8Array): void {
    const place = this.#warmPlace[slot];
    if (place < 0 || this.#options.warm.encode(place, piece, part)) return;
    this.#warmPlace[slot] = -1;
    this.#options.warm.abandon(place);
  }

  /** Notes that one piece of the slot's item has arrived. */
  #arrived(slot: number): void {
    if (--this.#pending[slot] > 0) return;
    const place = this.#warmPlace[slot];
    if (place >= 0) {
      this.#warmPlace[slot] = -1;
      this.#options.warm.finish(place);
    }
    this.#options.onLoaded(slot);
  }

  /** Waits for the writes of one piece into a slot. Never rejects. */
  async #writes(
    slot: number,
    token: number,
    writes: readonly Promise<void>[],
    onError: (cause: unknown) => void,
  ): Promise<void> {
    this.#writing[slot]++;
    this.#numWriting++;
    const results = await Promise.allSettled(writes);
    this.#writing[slot]--;
    this.#numWriting--;
    const failed = results.find((result) => result.status === 'rejected');
    if (this.#token[slot] !== token) {
      if (this.#writing[slot] === 0) {
        this.#numLeaving--;
        this.#table.addFree(slot);
      }
    } else if (failed === undefined) {
      this.#arrived(slot);
    } else {
      onError(failed.reason);
    }
    for (const resolve of this.#waiters.splice(0)) resolve();
  }
}
