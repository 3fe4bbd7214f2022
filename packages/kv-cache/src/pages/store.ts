/**
 * Pages outside the block pool: warm ones in memory, cold ones in a file, each tier with a budget. The least recently
 * used warm page moves to the cold tier when room is needed. A page leaves a tier only after the next one has stored
 * it: a failed write loses nothing, and a failed read names the missing positions.
 */
import { ArgumentError, CapacityError, checkOptions, type OptionNames } from '@winnow/tensor';
import { Limiter } from '../limiter.js';
import { checkPage, type PageFrames } from './frames.js';

export interface PageStoreOptions {
  readonly pageBytes: number;
  /** Slots per page. */
  readonly blockSize: number;
  /** Budget of the warm tier; rounded down to whole pages. */
  readonly warmBytes: number;
  /** The cold tier, which the store closes. Default: none; then `put` fails when the warm tier is full. */
  readonly frames?: PageFrames;
  /**
   * Maximum number of bytes that are read or written at a time, and that are prefetched. Default 8 MiB, at least one
   * page.
   */
  readonly maxInFlightBytes?: number;
  /** Called for every page that changes its tier. */
  readonly onMove?: (move: PageMove) => void;
}

const pageStoreNames: OptionNames<PageStoreOptions> = {
  pageBytes: true,
  blockSize: true,
  warmBytes: true,
  frames: true,
  maxInFlightBytes: true,
  onMove: true,
};

export interface PageMove {
  readonly pageId: number;
  readonly from: 'warm' | 'cold';
  readonly to: 'warm' | 'cold';
  readonly sizeBytes: number;
}

/** Counters since creation, and current sizes. */
export interface PageStatistics {
  readonly numWarmPages: number;
  readonly numColdPages: number;
  readonly warmBytes: number;
  readonly coldBytes: number;
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** Reads served by the warm tier, by prefetched pages, and by waiting for the file. */
  readonly warmHits: number;
  readonly prefetchHits: number;
  readonly misses: number;
  readonly demotions: number;
  readonly promotions: number;
  readonly peakInFlightBytes: number;
}

export interface PageStore {
  readonly pageBytes: number;
  readonly blockSize: number;
  /** The tier of a page; warm if it is in both. */
  tierOf(pageId: number): 'warm' | 'cold' | undefined;
  positions(pageId: number): Int32Array | undefined;
  /**
   * Stores a page, replacing one with the same id. On failure the store is unchanged.
   * @throws {CapacityError} when both tiers are full
   * @throws {IoError} when another page could not be moved to the cold tier to make room
   */
  put(pageId: number, page: Uint8Array, positions: ArrayLike<number>): Promise<void>;
  /**
   * Fills `target` with a page. `promote` also makes it warm if it can replace a page that the cold tier already has;
   * other pages are written to the cold tier meanwhile, so that later ones can replace them.
   * @throws {PageError} when the cold tier cannot read it or it is damaged; `target` is then zeros
   * @throws {ArgumentError} when there is no such page
   */
  read(pageId: number, target: Uint8Array, options?: { readonly promote?: boolean }): Promise<void>;
  /** The bytes of a warm page, read-only; they remain valid even if the page is replaced. */
  peek(pageId: number): Uint8Array | undefined;
  /** Starts to read cold pages, as many as the limit allows. Failures are thrown when the page is read. */
  prefetch(pageIds: Iterable<number>): void;
  /** Moves a page to the cold tier, regardless of the budget. */
  demote(pageId: number): Promise<void>;
  delete(pageIds: Iterable<number>): void;
  /** Writes warm pages that the cold tier does not have, and waits until they are on the device. */
  flush(): Promise<void>;
  statistics(): PageStatistics;
  /** Waits for pending operations and closes the cold tier. */
  close(): Promise<void>;
}

/** How many of the least recently used pages are tried when looking for one to replace. */
const maxPromotionTries = 4;

interface WarmPage {
  readonly bytes: Uint8Array;
  readonly positions: Int32Array;
  /** Whether the cold tier lacks it. */
  isDirty: boolean;
  writing: Promise<void> | undefined;
}

/** @throws {ArgumentError} when the frames have another size */
export function createPageStore(options: PageStoreOptions): PageStore {
  checkOptions(options, pageStoreNames);
  return new TieredPageStore(options);
}

class TieredPageStore implements PageStore {
  readonly pageBytes: number;
  readonly blockSize: number;
  readonly #frames: PageFrames | undefined;
  readonly #onMove: ((move: PageMove) => void) | undefined;
  readonly #warmCapacity: number;
  readonly #maxInFlight: number;
  readonly #limiter: Limiter;
  readonly #warm = new Map<number, WarmPage>(); // in insertion order, least recently used first
  readonly #prefetched = new Map<number, Promise<Uint8Array>>();
  readonly #counters = {
    bytesRead: 0,
    bytesWritten: 0,
    warmHits: 0,
    prefetchHits: 0,
    misses: 0,
    demotions: 0,
    promotions: 0,
  };
  /** Number of places in the warm tier that are reserved for incoming pages. */
  #numReserved = 0;

  constructor({ pageBytes, blockSize, warmBytes, frames, maxInFlightBytes = 2 ** 23, onMove }: PageStoreOptions) {
    if (frames !== undefined && (frames.pageBytes !== pageBytes || frames.blockSize !== blockSize)) {
      const expected = `pages of ${pageBytes} bytes and ${blockSize} slots`;
      const actual = `${frames.pageBytes} and ${frames.blockSize}`;
      throw new ArgumentError({ argument: 'frames', expected, actual });
    }
    this.pageBytes = pageBytes;
    this.blockSize = blockSize;
    this.#frames = frames;
    this.#onMove = onMove;
    this.#warmCapacity = Math.floor(warmBytes / pageBytes);
    this.#maxInFlight = Math.max(1, Math.floor(maxInFlightBytes / pageBytes));
    this.#limiter = new Limiter(this.#maxInFlight);
  }

  tierOf(pageId: number): 'warm' | 'cold' | undefined {
    if (this.#warm.has(pageId)) return 'warm';
    return this.#frames?.has(pageId) === true ? 'cold' : undefined;
  }

  positions(pageId: number): Int32Array | undefined {
    return this.#warm.get(pageId)?.positions ?? this.#frames?.positions(pageId);
  }

  async put(pageId: number, page: Uint8Array, positions: ArrayLike<number>): Promise<void> {
    checkPage(page, this.pageBytes);
    const fresh = { bytes: page.slice(), positions: Int32Array.from(positions), isDirty: true, writing: undefined };
    if (this.#warmCapacity === 0) {
      if (this.#frames === undefined) throw this.#fullWarm();
      await this.#writeCold(pageId, fresh);
      this.#prefetched.delete(pageId);
      return;
    }
    if (!this.#warm.has(pageId)) {
      await this.#reservePlace();
      this.#numReserved--;
    }
    this.#prefetched.delete(pageId);
    this.#touch(pageId, fresh);
  }

  async read(pageId: number, target: Uint8Array, { promote = false } = {}): Promise<void> {
    checkPage(target, this.pageBytes);
    const bytes = this.peek(pageId);
    if (bytes !== undefined) {
      target.set(bytes);
      return;
    }
    if (this.#frames?.has(pageId) !== true) {
      throw new ArgumentError({ argument: 'pageId', expected: 'a stored page', actual: String(pageId) });
    }
    const prefetched = this.#prefetched.get(pageId);
    if (prefetched === undefined) {
      this.#counters.misses++;
      await this.#readCold(pageId, target);
    } else {
      this.#counters.prefetchHits++;
      this.#prefetched.delete(pageId);
      target.set(await prefetched);
    }
    if (promote) this.#promote(pageId, target);
  }

  peek(pageId: number): Uint8Array | undefined {
    const page = this.#warm.get(pageId);
    if (page === undefined) return undefined;
    this.#counters.warmHits++;
    this.#touch(pageId, page);
    return page.bytes;
  }

  prefetch(pageIds: Iterable<number>): void {
    for (const pageId of pageIds) {
      if (this.#prefetched.size >= this.#maxInFlight) return;
      if (this.tierOf(pageId) !== 'cold' || this.#prefetched.has(pageId)) continue;
      const bytes = new Uint8Array(this.pageBytes);
      const reading = this.#readCold(pageId, bytes).then(() => bytes);
      reading.catch(() => undefined); // thrown when the page is read
      this.#prefetched.set(pageId, reading);
    }
  }

  async demote(pageId: number): Promise<void> {
    const page = this.#warm.get(pageId);
    if (page === undefined) return;
    if (this.#frames === undefined) throw this.#fullWarm();
    if (page.isDirty) await this.#clean(pageId, page);
    this.#dropWarm(pageId, page);
  }

  delete(pageIds: Iterable<number>): void {
    for (const pageId of pageIds) {
      this.#warm.delete(pageId);
      this.#prefetched.delete(pageId);
      this.#frames?.delete(pageId);
    }
  }

  async flush(): Promise<void> {
    if (this.#frames === undefined) return;
    const dirty = [...this.#warm].filter(([, page]) => page.isDirty);
    const results = await Promise.allSettled(dirty.map(([pageId, page]) => this.#clean(pageId, page)));
    for (const result of results) if (result.status === 'rejected') throw result.reason;
    await this.#frames.sync();
  }

  statistics(): PageStatistics {
    return {
      ...this.#counters,
      numWarmPages: this.#warm.size,
      numColdPages: this.#frames?.numPages ?? 0,
      warmBytes: this.#warm.size * this.pageBytes,
      coldBytes: this.#frames?.usedBytes ?? 0,
      peakInFlightBytes: this.#limiter.peak * this.pageBytes,
    };
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.#prefetched.values(), ...[...this.#warm.values()].map(({ writing }) => writing)]);
    this.#prefetched.clear();
    this.#warm.clear();
    await this.#limiter.idle();
    await this.#frames?.close();
  }

  #touch(pageId: number, page: WarmPage): void {
    this.#warm.delete(pageId);
    this.#warm.set(pageId, page);
  }

  async #readCold(pageId: number, target: Uint8Array): Promise<void> {
    await this.#limiter.run(() => (this.#frames as PageFrames).read(pageId, target));
    this.#counters.bytesRead += this.pageBytes;
  }

  async #writeCold(pageId: number, page: WarmPage, isWanted = (): boolean => true): Promise<void> {
    await this.#limiter.run(async () => {
      if (this.#frames === undefined || !isWanted()) return;
      await this.#frames.write(pageId, page.bytes, page.positions);
      this.#counters.bytesWritten += this.pageBytes;
      page.isDirty = false;
    });
  }

  /** Writes a page once, however many callers wait for it. */
  #clean(pageId: number, page: WarmPage): Promise<void> {
    // it may be replaced or deleted while it waits
    page.writing ??= this.#writeCold(pageId, page, () => this.#warm.get(pageId) === page).finally(() => {
      page.writing = undefined;
    });
    return page.writing;
  }

  #dropWarm(pageId: number, page: WarmPage): void {
    if (this.#warm.get(pageId) !== page) return; // replaced or deleted meanwhile
    this.#warm.delete(pageId);
    this.#counters.demotions++;
    this.#onMove?.({ pageId, from: 'warm', to: 'cold', sizeBytes: this.pageBytes });
  }

  #isWarmFull(): boolean {
    return this.#warm.size + this.#numReserved >= this.#warmCapacity;
  }

  /** Frees places until one is available for an incoming page, and reserves it. */
  async #reservePlace(): Promise<void> {
    while (this.#isWarmFull()) {
      const victim = this.#oldestAtRest();
      if (victim === undefined) {
        // all are being written: wait for the first one
        const [first] = this.#warm.values();
        await first?.writing; // or, without one, until the incoming pages have arrived
        continue;
      }
      const [pageId, page] = victim;
      if (page.isDirty && this.#frames === undefined) throw this.#fullWarm();
      if (page.isDirty) await this.#clean(pageId, page);
      if (!page.isDirty) this.#dropWarm(pageId, page);
    }
    this.#numReserved++;
  }

  /** The least recently used page that is not being written. */
  #oldestAtRest(): [number, WarmPage] | undefined {
    for (const entry of this.#warm) if (entry[1].writing === undefined) return entry;
    return undefined;
  }

  /** Keeps a page that was read in the warm tier if there is room or a clean page to replace. */
  #promote(pageId: number, bytes: Uint8Array): void {
    if (this.#warm.has(pageId) || this.#warmCapacity === 0) return;
    if (this.#isWarmFull()) this.#replaceClean();
    if (this.#isWarmFull()) return;
    const positions = (this.#frames as PageFrames).positions(pageId);
    if (positions === undefined) return; // deleted meanwhile
    this.#warm.set(pageId, { bytes: bytes.slice(), positions, isDirty: false, writing: undefined });
    this.#counters.promotions++;
    this.#onMove?.({ pageId, from: 'cold', to: 'warm', sizeBytes: this.pageBytes });
  }

  /** Drops one of the least recently used pages that the cold tier has; starts to write those before it. */
  #replaceClean(): void {
    let numTried = 0;
    for (const [pageId, page] of this.#warm) {
      if (numTried++ === maxPromotionTries) return;
      if (page.writing !== undefined) continue;
      if (!page.isDirty) {
        this.#dropWarm(pageId, page);
        return;
      }
      this.#clean(pageId, page).catch(() => undefined); // if it fails, the page is unchanged
    }
  }

  #fullWarm(): CapacityError {
    return new CapacityError({
      resource: 'kv cache: warm tier',
      needed: (this.#warm.size + this.#numReserved + 1) * this.pageBytes,
      available: this.#warmCapacity * this.pageBytes,
      unit: 'bytes',
      hint: 'there is no cold tier',
    });
  }
}
