/**
 * Pages outside the block pool: warm ones in memory, cold ones in a file, each tier with a budget. The least recently used
 * warm page moves to the cold tier when room is needed. A page leaves a tier only after the next one has it: a failing write
 * loses nothing, and a failing read says which positions are missing.
 */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { Limiter } from '../limiter.js';
import type { PageRecords } from './page-records.js';

export interface PageStoreOptions {
  readonly pageBytes: number;
  /** Slots per page. */
  readonly blockSize: number;
  /** Budget of the warm tier; rounded down to whole pages. */
  readonly warmBytes: number;
  /** The cold tier. Default: none, and then a full warm tier refuses. The store closes it. */
  readonly records?: PageRecords;
  /** Most bytes that are being read or written at a time, and most that are read ahead. Default 8 MiB, at least one page. */
  readonly maxInFlightBytes?: number;
  /** Told about every page that changes its tier. */
  readonly onMove?: (move: PageMove) => void;
}

export interface PageMove {
  readonly pageId: number;
  readonly from: 'warm' | 'cold';
  readonly to: 'warm' | 'cold';
  readonly sizeBytes: number;
}

/** Counters since creation, and what is there now. */
export interface PageStatistics {
  readonly numWarmPages: number;
  readonly numColdPages: number;
  readonly warmBytes: number;
  readonly coldBytes: number;
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** Reads answered from the warm tier, from what was read ahead, and by waiting for the file. */
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
  /** Where a page is; the warm tier if in both. */
  tierOf(pageId: number): 'warm' | 'cold' | undefined;
  positions(pageId: number): Int32Array | undefined;
  /**
   * Stores a page, replacing one of the same id. When that fails, the store is as it was before.
   * @throws {CapacityError} when both tiers are full
   * @throws {IoError} when another page could not be moved to the cold tier to make room
   */
  put(pageId: number, page: Uint8Array, positions: ArrayLike<number>): Promise<void>;
  /**
   * Fills `target` with a page. `promote` also makes it warm where it can replace a page that the cold tier has
   * already; pages that it does not have are written to it meanwhile, for later ones.
   * @throws {PageError} when the cold tier cannot read it or it is damaged; `target` is then zeros
   * @throws {ArgumentError} when there is no such page
   */
  read(pageId: number, target: Uint8Array, options?: { readonly promote?: boolean }): Promise<void>;
  /** The bytes of a warm page, not to be changed; they stay as they are whatever becomes of the page. */
  peek(pageId: number): Uint8Array | undefined;
  /** Starts to read cold pages ahead, as many as the limit allows. Failures show when the page is read. */
  prefetch(pageIds: Iterable<number>): void;
  /** Moves a page to the cold tier, whatever the budget. */
  demote(pageId: number): Promise<void>;
  delete(pageIds: Iterable<number>): void;
  /** Writes warm pages that the cold tier does not have, and waits until they are on the device. */
  flush(): Promise<void>;
  statistics(): PageStatistics;
  /** Waits for what is under way and closes the cold tier. */
  close(): Promise<void>;
}

/** How many of the least recently used pages are looked at for one that can be replaced. */
const maxPromotionTries = 4;

interface WarmPage {
  readonly bytes: Uint8Array;
  readonly positions: Int32Array;
  /** The cold tier does not have it. */
  isDirty: boolean;
  writing: Promise<void> | undefined;
}

/** @throws {ArgumentError} when the records are of another size */
export function createPageStore(options: PageStoreOptions): PageStore {
  const { pageBytes, blockSize, records, onMove } = options;
  if (records !== undefined && (records.pageBytes !== pageBytes || records.blockSize !== blockSize)) {
    const expected = `pages of ${pageBytes} bytes and ${blockSize} slots`;
    const actual = `${records.pageBytes} and ${records.blockSize}`;
    throw new ArgumentError({ argument: 'records', expected, actual });
  }
  const warmCapacity = Math.floor(options.warmBytes / pageBytes);
  const maxInFlight = Math.max(1, Math.floor((options.maxInFlightBytes ?? 8 * 1024 * 1024) / pageBytes));
  const limiter = new Limiter(maxInFlight);
  const warm = new Map<number, WarmPage>(); // insertion order: the least recently used first
  const ahead = new Map<number, Promise<Uint8Array>>();
  const counters = {
    bytesRead: 0,
    bytesWritten: 0,
    warmHits: 0,
    prefetchHits: 0,
    misses: 0,
    demotions: 0,
    promotions: 0,
  };
  /** Places in the warm tier that are promised to pages on their way in. */
  let numReserved = 0;

  function checkPage(bytes: Uint8Array): void {
    if (bytes.byteLength === pageBytes) return;
    throw new ArgumentError({ argument: 'page', expected: `${pageBytes} bytes`, actual: String(bytes.byteLength) });
  }

  function touch(pageId: number, page: WarmPage): void {
    warm.delete(pageId);
    warm.set(pageId, page);
  }

  async function writeCold(pageId: number, page: WarmPage, isWanted = (): boolean => true): Promise<void> {
    await limiter.run(async () => {
      if (records === undefined || !isWanted()) return;
      await records.write(pageId, page.bytes, page.positions);
      counters.bytesWritten += pageBytes;
      page.isDirty = false;
    });
  }

  /** Writes a page once, however many wait for it. */
  function clean(pageId: number, page: WarmPage): Promise<void> {
    // it may be replaced or deleted while it waits
    page.writing ??= writeCold(pageId, page, () => warm.get(pageId) === page).finally(() => {
      page.writing = undefined;
    });
    return page.writing;
  }

  function dropWarm(pageId: number, page: WarmPage): void {
    if (warm.get(pageId) !== page) return; // replaced or deleted meanwhile
    warm.delete(pageId);
    counters.demotions++;
    onMove?.({ pageId, from: 'warm', to: 'cold', sizeBytes: pageBytes });
  }

  const numWarmTaken = (): number => warm.size + numReserved;

  /** Frees places until one is left for a page that comes in, and reserves it. */
  async function reservePlace(): Promise<void> {
    while (numWarmTaken() >= warmCapacity) {
      let victim: [number, WarmPage] | undefined;
      for (const entry of warm) {
        if (entry[1].writing !== undefined) continue;
        victim = entry;
        break;
      }
      if (victim === undefined) {
        // all are being written already: wait for the first of them
        const [first] = warm.values();
        await first?.writing; // or, without one, until the pages that have a place reserved are in
        continue;
      }
      const [pageId, page] = victim;
      if (page.isDirty && records === undefined) throw fullWarm();
      if (page.isDirty) await clean(pageId, page);
      if (!page.isDirty) dropWarm(pageId, page);
    }
    numReserved++;
  }

  function fullWarm(): CapacityError {
    const available = warmCapacity * pageBytes;
    return new CapacityError({
      resource: 'kv cache: warm tier',
      needed: (numWarmTaken() + 1) * pageBytes,
      available,
      unit: 'bytes',
      hint: 'there is no cold tier',
    });
  }

  async function readCold(pageId: number, target: Uint8Array): Promise<void> {
    await limiter.run(() => (records as PageRecords).read(pageId, target));
    counters.bytesRead += pageBytes;
  }

  /** Keeps a page that was read in the warm tier if there is room or a clean page to replace. */
  function promote(pageId: number, bytes: Uint8Array): void {
    if (warm.has(pageId) || warmCapacity === 0) return;
    if (numWarmTaken() >= warmCapacity) {
      let numTried = 0;
      for (const [other, page] of warm) {
        if (numTried++ === maxPromotionTries) break;
        if (page.writing !== undefined) continue;
        if (page.isDirty) {
          clean(other, page).catch(() => undefined); // for later ones; if it fails, the page stays as it is
          continue;
        }
        dropWarm(other, page);
        break;
      }
      if (numWarmTaken() >= warmCapacity) return;
    }
    const positions = (records as PageRecords).positions(pageId);
    if (positions === undefined) return; // deleted meanwhile
    warm.set(pageId, { bytes: bytes.slice(), positions, isDirty: false, writing: undefined });
    counters.promotions++;
    onMove?.({ pageId, from: 'cold', to: 'warm', sizeBytes: pageBytes });
  }

  return {
    pageBytes,
    blockSize,
    tierOf(pageId) {
      if (warm.has(pageId)) return 'warm';
      return records?.has(pageId) === true ? 'cold' : undefined;
    },
    positions: (pageId) => warm.get(pageId)?.positions ?? records?.positions(pageId),
    async put(pageId, page, positions) {
      checkPage(page);
      const fresh: WarmPage = {
        bytes: page.slice(),
        positions: Int32Array.from(positions),
        isDirty: true,
        writing: undefined,
      };
      if (warmCapacity === 0) {
        if (records === undefined) throw fullWarm();
        await writeCold(pageId, fresh);
        ahead.delete(pageId);
        return;
      }
      if (!warm.has(pageId)) {
        await reservePlace();
        numReserved--;
      }
      ahead.delete(pageId);
      touch(pageId, fresh);
    },
    async read(pageId, target, { promote: shouldPromote = false } = {}) {
      checkPage(target);
      const page = warm.get(pageId);
      if (page !== undefined) {
        counters.warmHits++;
        touch(pageId, page);
        target.set(page.bytes);
        return;
      }
      if (records?.has(pageId) !== true) {
        throw new ArgumentError({ argument: 'pageId', expected: 'a stored page', actual: String(pageId) });
      }
      const prefetched = ahead.get(pageId);
      if (prefetched === undefined) {
        counters.misses++;
        await readCold(pageId, target);
      } else {
        counters.prefetchHits++;
        ahead.delete(pageId);
        target.set(await prefetched);
      }
      if (shouldPromote) promote(pageId, target);
    },
    peek(pageId) {
      const page = warm.get(pageId);
      if (page === undefined) return undefined;
      counters.warmHits++;
      touch(pageId, page);
      return page.bytes;
    },
    prefetch(pageIds) {
      for (const pageId of pageIds) {
        if (ahead.size >= maxInFlight) return;
        if (warm.has(pageId) || ahead.has(pageId) || records?.has(pageId) !== true) continue;
        const bytes = new Uint8Array(pageBytes);
        const reading = readCold(pageId, bytes).then(() => bytes);
        reading.catch(() => undefined); // whoever reads the page is told
        ahead.set(pageId, reading);
      }
    },
    async demote(pageId) {
      const page = warm.get(pageId);
      if (page === undefined) return;
      if (records === undefined) throw fullWarm();
      if (page.isDirty) await clean(pageId, page);
      dropWarm(pageId, page);
    },
    delete(pageIds) {
      for (const pageId of pageIds) {
        warm.delete(pageId);
        ahead.delete(pageId);
        records?.delete(pageId);
      }
    },
    async flush() {
      if (records === undefined) return;
      const dirty = [...warm].filter(([, page]) => page.isDirty);
      const results = await Promise.allSettled(dirty.map(([pageId, page]) => clean(pageId, page)));
      for (const result of results) if (result.status === 'rejected') throw result.reason;
      await records.sync();
    },
    statistics: () => ({
      ...counters,
      numWarmPages: warm.size,
      numColdPages: records?.numPages ?? 0,
      warmBytes: warm.size * pageBytes,
      coldBytes: records?.usedBytes ?? 0,
      peakInFlightBytes: limiter.peak * pageBytes,
    }),
    async close() {
      await Promise.allSettled([...ahead.values(), ...[...warm.values()].map(({ writing }) => writing)]);
      ahead.clear();
      warm.clear();
      await limiter.idle();
      await records?.close();
    },
  };
}
