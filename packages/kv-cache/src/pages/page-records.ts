/**
 * Pages in a file, one record each. A page that is written again goes to a free record; the old one becomes free when the
 * new one is complete. So whatever interrupts a write, the file holds the old page, the new one, or a record that says it is
 * damaged. Nothing is flushed to the device before `sync`.
 */
import { ArgumentError, CapacityError, FormatError } from '@winnow/tensor';
import { PageError } from './page-error.js';
import type { PageFile } from './page-file.js';
import { openRecord, pageOffset, recordBytesOf, sealRecord, type RecordShape } from './page-record.js';

export interface PageRecordsOptions extends RecordShape {
  /** Most bytes of the file. Default: no limit. */
  readonly maxBytes?: number;
}

/** A record that cannot be used, found on opening. */
export interface DamagedRecord {
  readonly byteOffset: number;
  readonly reason: string;
  /** Where its header is intact. */
  readonly pageId: number | undefined;
  readonly positions: readonly number[];
  /** Another version of the page is intact and is used. */
  readonly hasIntactVersion: boolean;
}

export interface PageRecords extends RecordShape {
  readonly recordBytes: number;
  readonly pageIds: readonly number[];
  readonly numPages: number;
  /** Bytes of the file that hold pages. */
  readonly usedBytes: number;
  /** Found when the file was opened. */
  readonly damaged: readonly DamagedRecord[];
  has(pageId: number): boolean;
  /** Position of each slot of a stored page. */
  positions(pageId: number): Int32Array | undefined;
  /**
   * Stores a page. The bytes are copied before the first wait.
   * @throws {IoError} when writing fails; an older version stays
   * @throws {CapacityError} beyond `maxBytes`
   */
  write(pageId: number, page: Uint8Array, positions: ArrayLike<number>): Promise<void>;
  /** Fills `target` with a page. @throws {PageError} when it cannot be read or is damaged; `target` is then zeros */
  read(pageId: number, target: Uint8Array): Promise<void>;
  delete(pageId: number): void;
  sync(): Promise<void>;
  close(): Promise<void>;
}

interface Entry {
  readonly record: number;
  readonly generation: number;
  readonly positions: Int32Array;
  numReaders: number;
  isCurrent: boolean;
}

/**
 * Opens a page file and checks every record that it holds.
 * @throws {FormatError} when it was made for pages of another size
 * @throws {IoError} when it cannot be read
 */
export async function openPageRecords(file: PageFile, options: PageRecordsOptions): Promise<PageRecords> {
  const { pageBytes, blockSize, maxBytes = Infinity } = options;
  const shape: RecordShape = { pageBytes, blockSize };
  const recordBytes = recordBytesOf(shape);
  const offset = pageOffset(blockSize);
  const maxRecords = Math.floor(maxBytes / recordBytes);
  const entries = new Map<number, Entry>();
  /** Pages with writes under way: how many, and the generation at which the page was deleted, if it was. */
  const writing = new Map<number, { count: number; deletedAt: number }>();
  const freeRecords: number[] = [];
  const buffers: Uint8Array[] = [];
  let numRecords = 0;
  let generation = 0;

  const takeBuffer = (): Uint8Array => buffers.pop() ?? new Uint8Array(recordBytes);
  const sourceOf = (record: number): { source: string; byteOffset: number } => ({
    source: file.name,
    byteOffset: record * recordBytes,
  });

  function retire(entry: Entry): void {
    entry.isCurrent = false;
    if (entry.numReaders === 0) freeRecords.push(entry.record);
  }

  function takeRecord(): number {
    const free = freeRecords.pop();
    if (free !== undefined) return free;
    if (numRecords >= maxRecords) {
      const available = maxRecords * recordBytes;
      const needed = available + recordBytes;
      throw new CapacityError({ resource: `kv cache: cold tier ${file.name}`, needed, available, unit: 'bytes' });
    }
    return numRecords++;
  }

  function checkPage(bytes: Uint8Array): void {
    if (bytes.byteLength === pageBytes) return;
    throw new ArgumentError({ argument: 'page', expected: `${pageBytes} bytes`, actual: String(bytes.byteLength) });
  }

  async function readBoth(begin: number, header: Uint8Array, page: Uint8Array): Promise<void> {
    if (file.readParts !== undefined) {
      await file.readParts(begin, [header, page]);
      return;
    }
    // both have to end before the buffers are anybody else's
    const results = await Promise.allSettled([file.read(begin, header), file.read(begin + header.byteLength, page)]);
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  const damaged = await scan();

  /** Reads every record of an existing file; the newest intact version of each page counts. */
  async function scan(): Promise<DamagedRecord[]> {
    const broken: Omit<DamagedRecord, 'hasIntactVersion'>[] = [];
    numRecords = Math.ceil(file.sizeBytes / recordBytes);
    const buffer = takeBuffer();
    for (let record = 0; record < numRecords; record++) {
      const { byteOffset } = sourceOf(record);
      buffer.fill(0);
      await file.read(byteOffset, buffer.subarray(0, Math.min(recordBytes, file.sizeBytes - byteOffset)));
      const state = openRecord(buffer, shape);
      if (state.kind === 'foreign') {
        throw new FormatError({ ...sourceOf(record), field: 'page record', message: state.reason });
      }
      if (state.kind !== 'valid') {
        freeRecords.push(record);
        if (state.kind === 'empty') continue;
        const positions = Array.from(state.header?.positions ?? []).filter((position) => position >= 0);
        broken.push({ byteOffset, reason: state.reason, pageId: state.header?.pageId, positions });
        continue;
      }
      const { header } = state;
      generation = Math.max(generation, header.generation);
      const known = entries.get(header.pageId);
      if (known !== undefined && known.generation > header.generation) {
        freeRecords.push(record);
        continue;
      }
      if (known !== undefined) retire(known);
      const { positions } = header;
      entries.set(header.pageId, { record, generation: header.generation, positions, numReaders: 0, isCurrent: true });
    }
    buffers.push(buffer);
    return broken.map((record) => ({
      ...record,
      hasIntactVersion: record.pageId !== undefined && entries.has(record.pageId),
    }));
  }

  return {
    ...shape,
    recordBytes,
    damaged,
    get pageIds() {
      return [...entries.keys()];
    },
    get numPages() {
      return entries.size;
    },
    get usedBytes() {
      return (numRecords - freeRecords.length) * recordBytes;
    },
    has: (pageId) => entries.has(pageId),
    positions: (pageId) => entries.get(pageId)?.positions,
    async write(pageId, page, positions) {
      checkPage(page);
      if (!Number.isSafeInteger(pageId) || pageId < 0) {
        throw new ArgumentError({ argument: 'pageId', expected: 'a non-negative integer', actual: String(pageId) });
      }
      const record = takeRecord();
      const buffer = takeBuffer();
      const own = ++generation;
      const writes = writing.get(pageId) ?? { count: 0, deletedAt: 0 };
      writing.set(pageId, writes);
      writes.count++;
      buffer.set(page, offset);
      const entry: Entry = {
        record,
        generation: own,
        positions: Int32Array.from(positions),
        numReaders: 0,
        isCurrent: true,
      };
      sealRecord(buffer, shape, { pageId, generation: own, positions: entry.positions });
      try {
        await file.write(record * recordBytes, buffer);
      } catch (error) {
        freeRecords.push(record);
        throw error;
      } finally {
        buffers.push(buffer);
        if (--writes.count === 0) writing.delete(pageId);
      }
      const old = entries.get(pageId);
      if (writes.deletedAt > own || (old !== undefined && old.generation > own)) {
        freeRecords.push(record); // deleted or written again in the meantime
        return;
      }
      entries.set(pageId, entry);
      if (old !== undefined) retire(old);
    },
    async read(pageId, target) {
      checkPage(target);
      const entry = entries.get(pageId);
      if (entry === undefined) {
        throw new ArgumentError({ argument: 'pageId', expected: 'a stored page', actual: String(pageId) });
      }
      const fail = (message: string, cause?: unknown): PageError => {
        target.fill(0);
        const positions = Array.from(entry.positions).filter((position) => position >= 0);
        return new PageError({ ...sourceOf(entry.record), pageIds: [pageId], positions, message }, { cause });
      };
      const buffer = takeBuffer();
      entry.numReaders++;
      try {
        const begin = entry.record * recordBytes;
        // the page goes where it is wanted
        await readBoth(begin, buffer.subarray(0, offset), target);
        const state = openRecord(buffer, shape, target);
        if (state.kind !== 'valid') throw fail(state.kind === 'empty' ? 'the record is empty' : state.reason);
        if (state.header.pageId !== pageId || state.header.generation !== entry.generation) {
          throw fail(`the record holds page ${state.header.pageId}, generation ${state.header.generation}`);
        }
      } catch (error) {
        throw PageError.isInstance(error) ? error : fail(error instanceof Error ? error.message : String(error), error);
      } finally {
        buffers.push(buffer);
        if (--entry.numReaders === 0 && !entry.isCurrent) freeRecords.push(entry.record);
      }
    },
    delete(pageId) {
      const writes = writing.get(pageId);
      if (writes !== undefined) writes.deletedAt = ++generation;
      const entry = entries.get(pageId);
      if (entry === undefined) return;
      entries.delete(pageId);
      retire(entry);
    },
    sync: () => file.sync(),
    close: () => file.close(),
  };
}
