/**
 * Blocks that left the pool. A few of one sequence leave together, as a run: of each cache buffer their rows are one page of
 * a page store, so that a layer is read by itself and in large pieces. A run goes when no sequence refers to any of its
 * blocks.
 */
import {
  createPageStore,
  openPageRecords,
  PageError,
  type PageFile,
  type PageMove,
  type PageStatistics,
  type PageStore,
} from '@winnow/kv-cache';
import { ArgumentError, invariant } from '@winnow/tensor';
import type { ColdFiles } from '../memory/cold-files.js';
import type { KvBuffer } from '../memory/kv-memory.js';

/** Counters since loading, and what is there now. */
export interface TierStoreStatistics extends PageStatistics {
  /** Blocks outside the pool. */
  readonly numStoredBlocks: number;
  readonly residentBytes: number;
}

/** Where a block is that left the pool. */
export interface StoredBlock {
  readonly runId: number;
  /** Which block of the run. */
  readonly index: number;
}

export interface TierStore {
  readonly runBlocks: number;
  /**
   * Stores blocks, at most `runBlocks`. All or nothing.
   * @param positions of each block's slots
   * @param readRow copies a block's row of a buffer to `target`
   * @returns a page id for each block
   * @throws {CapacityError | IoError} when the tiers are full or a file cannot be written
   */
  put(
    positions: readonly Int32Array[],
    readRow: (buffer: KvBuffer, index: number, target: Uint8Array) => Promise<void>,
  ): Promise<readonly number[]>;
  /** Another page id for the same block. */
  share(pageId: number): number;
  locate(pageId: number): StoredBlock;
  /** Buffers whose rows stay in memory. */
  readonly residentBuffers: readonly KvBuffer[];
  /** The rows of those, of one block, each where `residentOffset` says. */
  resident(pageId: number): Float32Array;
  /** In numbers of 4 bytes. */
  residentOffset(buffer: KvBuffer): number;
  /**
   * Reads the rows of all blocks of a run of a buffer that is not resident.
   * @param shouldPromote keeps them in memory, if that takes no writing
   * @throws {PageError} naming the positions that cannot be read
   */
  readRun(runId: number, buffer: KvBuffer, target: Uint8Array, shouldPromote?: boolean): Promise<void>;
  /** The rows of all blocks of a run where they are in memory: not to be changed. */
  peekRun(runId: number, buffer: KvBuffer): Uint8Array | undefined;
  /** Forgets pages; what no page refers to any more goes. */
  drop(pageIds: readonly number[]): void;
  statistics(): TierStoreStatistics;
  close(): Promise<void>;
}

export interface TierStoreOptions {
  readonly buffers: readonly KvBuffer[];
  /** Those whose rows, of 4-byte numbers, stay in memory: what pages are chosen by. */
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

/** One page store for all buffers whose rows have the same size. */
export async function openTierStore(options: TierStoreOptions): Promise<TierStore> {
  const { blockSize, runBlocks, warmBytes, cold, onMove } = options;
  const buffers = options.buffers.filter((buffer) => !options.isResident(buffer));
  const residentBuffers = options.buffers.filter(options.isResident);
  const offsets = new Map<KvBuffer, number>();
  let residentLength = 0;
  for (const buffer of residentBuffers) {
    offsets.set(buffer, residentLength);
    residentLength += buffer.rowBytes / 4;
  }
  const storeOf = new Map<KvBuffer, PageStore>();
  const stores: PageStore[] = [];
  const totalRowBytes = buffers.reduce((sum, { rowBytes }) => sum + rowBytes, 0);
  try {
    for (const rowBytes of new Set(buffers.map((buffer) => buffer.rowBytes))) {
      const own = buffers.filter((buffer) => buffer.rowBytes === rowBytes);
      const share = (own.length * rowBytes) / totalRowBytes;
      const shape = { pageBytes: runBlocks * rowBytes, blockSize: runBlocks * blockSize };
      const records = cold === undefined ? {} : { records: await openRecords(await cold.create('kv'), shape) };
      const store = createPageStore({ ...shape, warmBytes: Math.floor(warmBytes * share), ...records, onMove });
      stores.push(store);
      for (const buffer of own) storeOf.set(buffer, store);
    }
  } catch (error) {
    await closeAll(stores);
    throw error;
  }
  const indexOf = new Map(buffers.map((buffer, index) => [buffer, index]));
  const runs = new Map<number, Run>();
  const pages = new Map<number, StoredBlock>();
  let nextRun = 0;
  let nextPage = 0;
  let numResident = 0;

  const storedId = (runId: number, buffer: KvBuffer): number =>
    runId * buffers.length + (indexOf.get(buffer) as number);
  const storeFor = (buffer: KvBuffer): PageStore => storeOf.get(buffer) as PageStore;

  function rowOf(numbers: Float32Array, buffer: KvBuffer): Uint8Array {
    return new Uint8Array(numbers.buffer, (offsets.get(buffer) as number) * 4, buffer.rowBytes);
  }

  function deleteRun(runId: number): void {
    for (const buffer of buffers) storeFor(buffer).delete([storedId(runId, buffer)]);
  }

  function locate(pageId: number): StoredBlock {
    const block = pages.get(pageId);
    if (block !== undefined) return block;
    throw new ArgumentError({ argument: 'pageId', expected: 'a stored page', actual: String(pageId) });
  }

  return {
    runBlocks,
    async put(positions, readRow) {
      invariant(positions.length > 0 && positions.length <= runBlocks, `a run has 1 to ${runBlocks} blocks`);
      const runId = nextRun++;
      const all = new Int32Array(runBlocks * blockSize).fill(-1);
      for (const [index, own] of positions.entries()) all.set(own, index * blockSize);
      const resident = positions.map(() => new Float32Array(residentLength));
      try {
        for (const [index, numbers] of resident.entries()) {
          for (const buffer of residentBuffers) await readRow(buffer, index, rowOf(numbers, buffer));
        }
        for (const buffer of buffers) {
          const page = new Uint8Array(runBlocks * buffer.rowBytes);
          for (let index = 0; index < positions.length; index++) {
            await readRow(buffer, index, page.subarray(index * buffer.rowBytes, (index + 1) * buffer.rowBytes));
          }
          await storeFor(buffer).put(storedId(runId, buffer), page, all);
        }
      } catch (error) {
        deleteRun(runId);
        throw error;
      }
      runs.set(runId, { numPages: positions.length, resident });
      numResident += positions.length;
      return positions.map((_, index) => {
        pages.set(nextPage, { runId, index });
        return nextPage++;
      });
    },
    share(pageId) {
      const block = locate(pageId);
      (runs.get(block.runId) as Run).numPages++;
      pages.set(nextPage, block);
      return nextPage++;
    },
    locate,
    residentBuffers,
    resident(pageId) {
      const { runId, index } = locate(pageId);
      return (runs.get(runId) as Run).resident[index] as Float32Array;
    },
    residentOffset: (buffer) => offsets.get(buffer) as number,
    async readRun(runId, buffer, target, shouldPromote = false) {
      await storeFor(buffer).read(storedId(runId, buffer), target, { promote: shouldPromote });
    },
    peekRun: (runId, buffer) => storeFor(buffer).peek(storedId(runId, buffer)),
    drop(pageIds) {
      for (const pageId of pageIds) {
        const { runId } = locate(pageId);
        const run = runs.get(runId) as Run;
        pages.delete(pageId);
        if (--run.numPages > 0) continue;
        runs.delete(runId);
        numResident -= run.resident.length;
        deleteRun(runId);
      }
    },
    statistics() {
      const all = stores.map((store) => store.statistics());
      const sum = (field: keyof PageStatistics): number => all.reduce((total, one) => total + one[field], 0);
      return {
        numStoredBlocks: pages.size,
        residentBytes: numResident * residentLength * 4,
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
    },
    close: () => closeAll(stores),
  };
}

async function openRecords(
  file: PageFile,
  shape: { readonly pageBytes: number; readonly blockSize: number },
): ReturnType<typeof openPageRecords> {
  try {
    return await openPageRecords(file, shape);
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Closes every store, then tells of the first that could not be. */
async function closeAll(stores: readonly PageStore[]): Promise<void> {
  const results = await Promise.allSettled(stores.map((store) => store.close()));
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}

/** One error for what could not be read at the same time, naming all positions. */
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
