/**
 * Blocks that left the pool. Neighboring blocks of a sequence leave together as a run. Their rows in each cache buffer
 * form one page of a page store, so that each layer is read separately and in large pieces. A run is deleted when no
 * sequence refers to any of its blocks.
 */
import {
  createPageStore,
  openPageFrames,
  PageError,
  type PageFile,
  type PageMove,
  type PageFrames,
  type PageStatistics,
  type PageStore,
} from '@winnow/kv-cache';
import { ArgumentError, invariant } from '@winnow/tensor';
import type { ColdFiles } from '../memory/cold-files.js';
import type { KvBuffer } from '../memory/kv-memory.js';

/** Counters since loading, and current contents. */
export interface OffloadStoreStatistics extends PageStatistics {
  /** Blocks outside the pool. */
  readonly numStoredBlocks: number;
  readonly residentBytes: number;
}

/** The location of a block outside the pool. */
export interface StoredBlock {
  readonly runId: number;
  /** Which block of the run. */
  readonly index: number;
}

/** Copies a block's row of a buffer to `target`. */
export type ReadRow = (buffer: KvBuffer, index: number, target: Uint8Array) => Promise<void>;

export interface OffloadStoreOptions {
  readonly buffers: readonly KvBuffer[];
  /** Buffers whose rows, of 4-byte numbers, stay in memory: the data for selecting pages. */
  readonly isResident: (buffer: KvBuffer) => boolean;
  readonly blockSize: number;
  readonly runBlocks: number;
  readonly warmBytes: number;
  readonly cold: ColdFiles | undefined;
  readonly onMove: (move: PageMove) => void;
}

interface Run {
  numPages: number;
  /** By block. */
  readonly resident: readonly Float32Array[];
}

/** Stored pages of the buffers with the same row size, by buffer. */
interface PageStores {
  readonly stores: readonly PageStore[];
  readonly byBuffer: ReadonlyMap<KvBuffer, PageStore>;
}

export class OffloadStore {
  readonly runBlocks: number;
  /** Buffers whose rows stay in memory. */
  readonly residentBuffers: readonly KvBuffer[];
  readonly #blockSize: number;
  readonly #buffers: readonly KvBuffer[];
  readonly #stores: PageStores;
  /** Offsets of the rows of resident buffers, in 4-byte units. */
  readonly #residentOffsets = new Map<KvBuffer, number>();
  readonly #residentLength: number;
  readonly #runs = new Map<number, Run>();
  readonly #pages = new Map<number, StoredBlock>();
  #nextRun = 0;
  #nextPage = 0;
  #numResident = 0;

  private constructor({ buffers, isResident, blockSize, runBlocks }: OffloadStoreOptions, stores: PageStores) {
    this.runBlocks = runBlocks;
    this.residentBuffers = buffers.filter(isResident);
    this.#blockSize = blockSize;
    this.#buffers = buffers.filter((buffer) => !isResident(buffer));
    this.#stores = stores;
    let length = 0;
    for (const buffer of this.residentBuffers) {
      this.#residentOffsets.set(buffer, length);
      length += buffer.rowBytes / 4;
    }
    this.#residentLength = length;
  }

  /** @throws {IoError} when a file of the cold tier cannot be created */
  static async open(options: OffloadStoreOptions): Promise<OffloadStore> {
    return new OffloadStore(options, await openPageStores(options));
  }

  /**
   * Stores at most `runBlocks` blocks, atomically.
   * @param positions of each block's slots
   * @param readRow copies a block's row of a buffer to `target`
   * @returns a page id for each block
   * @throws {CapacityError | IoError} when the tiers are full or a file cannot be written
   */
  async put(positions: readonly Int32Array[], readRow: ReadRow): Promise<readonly number[]> {
    const { length } = positions;
    invariant(length > 0 && length <= this.runBlocks, `a run has 1 to ${this.runBlocks} blocks`);
    const runId = this.#nextRun++;
    let resident: readonly Float32Array[];
    try {
      resident = await this.#readResident(length, readRow);
      await this.#putRows(runId, positions, readRow);
    } catch (error) {
      this.#deleteRun(runId);
      throw error;
    }
    this.#runs.set(runId, { numPages: length, resident });
    this.#numResident += length;
    return positions.map((_, index) => this.#addPage({ runId, index }));
  }

  /** Another page id for the same block. */
  share(pageId: number): number {
    const block = this.locate(pageId);
    (this.#runs.get(block.runId) as Run).numPages++;
    return this.#addPage(block);
  }

  locate(pageId: number): StoredBlock {
    const block = this.#pages.get(pageId);
    if (block !== undefined) return block;
    throw new ArgumentError({ argument: 'pageId', expected: 'a stored page', actual: String(pageId) });
  }

  /** The rows of the resident buffers of a block, each where `residentOffset` says. */
  resident(pageId: number): Float32Array {
    const { runId, index } = this.locate(pageId);
    return (this.#runs.get(runId) as Run).resident[index] as Float32Array;
  }

  /** In 4-byte units. */
  residentOffset(buffer: KvBuffer): number {
    return this.#residentOffsets.get(buffer) as number;
  }

  /**
   * Reads the rows of all blocks of a run of a buffer that is not resident.
   * @param promote keeps them in memory if that needs no write
   * @throws {PageError} naming the positions that cannot be read
   */
  async readRun(runId: number, buffer: KvBuffer, target: Uint8Array, promote = false): Promise<void> {
    await this.#storeOf(buffer).read(this.#storedId(runId, buffer), target, { promote });
  }

  /** The rows of all blocks of a run if they are in memory; read-only. */
  peekRun(runId: number, buffer: KvBuffer): Uint8Array | undefined {
    return this.#storeOf(buffer).peek(this.#storedId(runId, buffer));
  }

  /** Drops pages, and the runs that no page refers to anymore. */
  drop(pageIds: readonly number[]): void {
    for (const pageId of pageIds) {
      const { runId } = this.locate(pageId);
      const run = this.#runs.get(runId) as Run;
      this.#pages.delete(pageId);
      if (--run.numPages > 0) continue;
      this.#runs.delete(runId);
      this.#numResident -= run.resident.length;
      this.#deleteRun(runId);
    }
  }

  statistics(): OffloadStoreStatistics {
    const all = this.#stores.stores.map((store) => store.statistics());
    const sum = (field: keyof PageStatistics): number => all.reduce((total, one) => total + one[field], 0);
    return {
      numStoredBlocks: this.#pages.size,
      residentBytes: this.#numResident * this.#residentLength * 4,
      numWarmPages: sum('numWarmPages'),
      numColdPages: sum('numColdPages'),
      warmBytes: sum('warmBytes'),
      coldBytes: sum('coldBytes'),
      bytesRead: sum('bytesRead'),
      bytesWritten: sum('bytesWritten'),
      warmHits: sum('warmHits'),
      prefetchHits: sum('prefetchHits'),
      misses: sum('misses'),
      demotions: sum('demotions'),
      promotions: sum('promotions'),
      peakInFlightBytes: sum('peakInFlightBytes'),
    };
  }

  close(): Promise<void> {
    return closeAll(this.#stores.stores);
  }

  #addPage(block: StoredBlock): number {
    this.#pages.set(this.#nextPage, block);
    return this.#nextPage++;
  }

  #storeOf(buffer: KvBuffer): PageStore {
    return this.#stores.byBuffer.get(buffer) as PageStore;
  }

  #storedId(runId: number, buffer: KvBuffer): number {
    return runId * this.#buffers.length + this.#buffers.indexOf(buffer);
  }

  #deleteRun(runId: number): void {
    for (const buffer of this.#buffers) this.#storeOf(buffer).delete([this.#storedId(runId, buffer)]);
  }

  async #readResident(numBlocks: number, readRow: ReadRow): Promise<Float32Array[]> {
    const resident = Array.from({ length: numBlocks }, () => new Float32Array(this.#residentLength));
    for (const [index, { buffer: memory }] of resident.entries()) {
      for (const buffer of this.residentBuffers) {
        await readRow(buffer, index, new Uint8Array(memory, this.residentOffset(buffer) * 4, buffer.rowBytes));
      }
    }
    return resident;
  }

  async #putRows(runId: number, positions: readonly Int32Array[], readRow: ReadRow): Promise<void> {
    const all = new Int32Array(this.runBlocks * this.#blockSize).fill(-1);
    for (const [index, own] of positions.entries()) all.set(own, index * this.#blockSize);
    for (const buffer of this.#buffers) {
      const { rowBytes } = buffer;
      const page = new Uint8Array(this.runBlocks * rowBytes);
      for (let index = 0; index < positions.length; index++) {
        await readRow(buffer, index, page.subarray(index * rowBytes, (index + 1) * rowBytes));
      }
      await this.#storeOf(buffer).put(this.#storedId(runId, buffer), page, all);
    }
  }
}

/** One page store for all buffers whose rows have the same size. */
async function openPageStores(options: OffloadStoreOptions): Promise<PageStores> {
  const { blockSize, runBlocks, warmBytes, cold, onMove } = options;
  const buffers = options.buffers.filter((buffer) => !options.isResident(buffer));
  const byBuffer = new Map<KvBuffer, PageStore>();
  const stores: PageStore[] = [];
  const totalRowBytes = buffers.reduce((sum, { rowBytes }) => sum + rowBytes, 0);
  try {
    for (const rowBytes of new Set(buffers.map((buffer) => buffer.rowBytes))) {
      const own = buffers.filter((buffer) => buffer.rowBytes === rowBytes);
      const share = (own.length * rowBytes) / totalRowBytes;
      const [pageBytes, pageSlots] = [runBlocks * rowBytes, runBlocks * blockSize];
      const frames = cold && (await openFrames(await cold.create('kv'), pageBytes, pageSlots));
      const store = createPageStore({
        ...{ pageBytes, blockSize: pageSlots, warmBytes: Math.floor(warmBytes * share), onMove },
        ...(frames === undefined ? {} : { frames }),
      });
      stores.push(store);
      for (const buffer of own) byBuffer.set(buffer, store);
    }
    return { stores, byBuffer };
  } catch (error) {
    await closeAll(stores);
    throw error;
  }
}

async function openFrames(file: PageFile, pageBytes: number, blockSize: number): Promise<PageFrames> {
  try {
    return await openPageFrames(file, { pageBytes, blockSize });
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Closes every store, then throws the first error. */
async function closeAll(stores: readonly PageStore[]): Promise<void> {
  const results = await Promise.allSettled(stores.map((store) => store.close()));
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}

/** One error for concurrent failed reads, naming all positions. */
export function joinPageErrors(errors: readonly unknown[]): unknown {
  const [first] = errors;
  const pageErrors = errors.filter((error) => PageError.isInstance(error));
  const [firstPage] = pageErrors;
  if (firstPage === undefined || pageErrors.length < errors.length || errors.length === 1) {
    return errors.find((error) => !PageError.isInstance(error)) ?? first;
  }
  const { source, byteOffset } = firstPage;
  return new PageError(
    {
      source,
      ...(byteOffset === undefined ? {} : { byteOffset }),
      pageIds: [...new Set(pageErrors.flatMap(({ pageIds }) => pageIds))],
      positions: [...new Set(pageErrors.flatMap(({ positions }) => positions))],
      message: 'several pages cannot be read',
    },
    { cause: first },
  );
}
