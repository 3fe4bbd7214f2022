/**
 * Pages in a file, each in a frame of fixed size with a header. A page that is rewritten goes to a free frame; the old
 * frame becomes free when the new one is complete. So after an interrupted write, the file holds the old page, the new
 * one, or a frame that is known to be damaged. Nothing is flushed to the device before `sync`.
 */
import { ArgumentError, CapacityError, checkOptions, FormatError, type OptionNames } from '@winnow/tensor';
import { PageError } from './error.js';
import type { PageFile } from './file.js';
import {
  openFrame,
  pageOffset,
  frameBytesOf,
  sealFrame,
  type FrameHeader,
  type PageFrameShape,
  type FrameState,
} from './frame.js';

export interface PageFramesOptions extends PageFrameShape {
  /** Maximum size of the file. Default: no limit. */
  readonly maxBytes?: number;
}

const framesNames: OptionNames<PageFramesOptions> = { pageBytes: true, blockSize: true, maxBytes: true };

/** A frame that cannot be used, found on opening. */
export interface DamagedFrame {
  readonly byteOffset: number;
  readonly reason: string;
  /** Defined if its header is intact. */
  readonly pageId: number | undefined;
  readonly positions: readonly number[];
  /** Whether another version of the page is intact and used instead. */
  readonly hasIntactVersion: boolean;
}

export interface PageFrames extends PageFrameShape {
  readonly frameBytes: number;
  readonly pageIds: readonly number[];
  readonly numPages: number;
  /** Bytes of the file that hold pages. */
  readonly usedBytes: number;
  /** Found when the file was opened. */
  readonly damaged: readonly DamagedFrame[];
  has(pageId: number): boolean;
  /** Position of each slot of a stored page. */
  positions(pageId: number): Int32Array | undefined;
  /**
   * Stores a page. The bytes are copied before the first await.
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

/** The frame of a page. */
interface Entry {
  readonly frame: number;
  readonly generation: number;
  readonly positions: Int32Array;
  numReaders: number;
  isCurrent: boolean;
}

/** Pending writes of one page: their number, and the generation at which the page was deleted, if it was. */
interface PendingWrites {
  count: number;
  deletedAt: number;
}

/**
 * Opens a page file and checks every frame that it holds.
 * @throws {FormatError} when its pages have another size
 * @throws {IoError} when it cannot be read
 */
export async function openPageFrames(file: PageFile, options: PageFramesOptions): Promise<PageFrames> {
  checkOptions(options, framesNames);
  const frames = new FilePageFrames(file, options);
  await frames.scan();
  return frames;
}

class FilePageFrames implements PageFrames {
  readonly pageBytes: number;
  readonly blockSize: number;
  readonly frameBytes: number;
  readonly #file: PageFile;
  readonly #pageOffset: number;
  readonly #maxFrames: number;
  readonly #entries = new Map<number, Entry>();
  readonly #pendingWrites = new Map<number, PendingWrites>();
  readonly #freeFrames: number[] = [];
  readonly #buffers: Uint8Array[] = [];
  #damaged: readonly DamagedFrame[] = [];
  #numFrames = 0;
  #generation = 0;

  constructor(file: PageFile, { pageBytes, blockSize, maxBytes = Infinity }: PageFramesOptions) {
    this.#file = file;
    this.pageBytes = pageBytes;
    this.blockSize = blockSize;
    this.frameBytes = frameBytesOf(this);
    this.#pageOffset = pageOffset(blockSize);
    this.#maxFrames = Math.floor(maxBytes / this.frameBytes);
  }

  get damaged(): readonly DamagedFrame[] {
    return this.#damaged;
  }

  get pageIds(): readonly number[] {
    return [...this.#entries.keys()];
  }

  get numPages(): number {
    return this.#entries.size;
  }

  get usedBytes(): number {
    return (this.#numFrames - this.#freeFrames.length) * this.frameBytes;
  }

  has(pageId: number): boolean {
    return this.#entries.has(pageId);
  }

  positions(pageId: number): Int32Array | undefined {
    return this.#entries.get(pageId)?.positions;
  }

  /** Reads every frame of an existing file; the newest intact version of each page counts. */
  async scan(): Promise<void> {
    const broken: Omit<DamagedFrame, 'hasIntactVersion'>[] = [];
    this.#numFrames = Math.ceil(this.#file.sizeBytes / this.frameBytes);
    const buffer = this.#takeBuffer();
    for (let frame = 0; frame < this.#numFrames; frame++) {
      const { byteOffset } = this.#placeOf(frame);
      buffer.fill(0);
      const numBytes = Math.min(this.frameBytes, this.#file.sizeBytes - byteOffset);
      await this.#file.read(byteOffset, buffer.subarray(0, numBytes));
      const state = openFrame(buffer, this);
      if (state.kind === 'foreign') {
        throw new FormatError({ ...this.#placeOf(frame), field: 'page frame', message: state.reason });
      }
      if (state.kind === 'valid') {
        this.#adopt(frame, state.header);
        continue;
      }
      this.#freeFrames.push(frame);
      if (state.kind === 'empty') continue;
      const positions = filledOf(state.header?.positions ?? []);
      broken.push({ byteOffset, reason: state.reason, pageId: state.header?.pageId, positions });
    }
    this.#buffers.push(buffer);
    this.#damaged = broken.map((frame) => ({
      ...frame,
      hasIntactVersion: frame.pageId !== undefined && this.#entries.has(frame.pageId),
    }));
  }

  async write(pageId: number, page: Uint8Array, positions: ArrayLike<number>): Promise<void> {
    checkPage(page, this.pageBytes);
    if (!Number.isSafeInteger(pageId) || pageId < 0) {
      throw new ArgumentError({ argument: 'pageId', expected: 'a non-negative integer', actual: String(pageId) });
    }
    const frame = this.#takeFrame();
    const generation = ++this.#generation;
    const writes = this.#beginWrite(pageId);
    const entry = { frame, generation, positions: Int32Array.from(positions), numReaders: 0, isCurrent: true };
    const buffer = this.#takeBuffer();
    buffer.set(page, this.#pageOffset);
    sealFrame(buffer, this, { pageId, generation, positions: entry.positions });
    try {
      await this.#file.write(frame * this.frameBytes, buffer);
    } catch (error) {
      this.#freeFrames.push(frame);
      throw error;
    } finally {
      this.#buffers.push(buffer);
      if (--writes.count === 0) this.#pendingWrites.delete(pageId);
    }
    const old = this.#entries.get(pageId);
    if (writes.deletedAt > generation || (old !== undefined && old.generation > generation)) {
      this.#freeFrames.push(frame); // deleted or rewritten meanwhile
      return;
    }
    this.#entries.set(pageId, entry);
    if (old !== undefined) this.#retire(old);
  }

  async read(pageId: number, target: Uint8Array): Promise<void> {
    checkPage(target, this.pageBytes);
    const entry = this.#entries.get(pageId);
    if (entry === undefined) {
      throw new ArgumentError({ argument: 'pageId', expected: 'a stored page', actual: String(pageId) });
    }
    const buffer = this.#takeBuffer();
    entry.numReaders++;
    try {
      // read directly into the target
      await this.#readParts(entry.frame * this.frameBytes, buffer.subarray(0, this.#pageOffset), target);
      const reason = reasonAgainst(openFrame(buffer, this, target), pageId, entry.generation);
      if (reason !== undefined) throw this.#pageError(pageId, entry, reason);
    } catch (error) {
      target.fill(0);
      if (PageError.isInstance(error)) throw error;
      throw this.#pageError(pageId, entry, error instanceof Error ? error.message : String(error), error);
    } finally {
      this.#buffers.push(buffer);
      if (--entry.numReaders === 0 && !entry.isCurrent) this.#freeFrames.push(entry.frame);
    }
  }

  delete(pageId: number): void {
    const writes = this.#pendingWrites.get(pageId);
    if (writes !== undefined) writes.deletedAt = ++this.#generation;
    const entry = this.#entries.get(pageId);
    if (entry === undefined) return;
    this.#entries.delete(pageId);
    this.#retire(entry);
  }

  sync(): Promise<void> {
    return this.#file.sync();
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  #placeOf(frame: number): { source: string; byteOffset: number } {
    return { source: this.#file.name, byteOffset: frame * this.frameBytes };
  }

  #pageError(pageId: number, { frame, positions }: Entry, message: string, cause?: unknown): PageError {
    const fields = { ...this.#placeOf(frame), pageIds: [pageId], positions: filledOf(positions), message };
    return new PageError(fields, { cause });
  }

  #takeBuffer(): Uint8Array {
    return this.#buffers.pop() ?? new Uint8Array(this.frameBytes);
  }

  #takeFrame(): number {
    const free = this.#freeFrames.pop();
    if (free !== undefined) return free;
    if (this.#numFrames >= this.#maxFrames) {
      const available = this.#maxFrames * this.frameBytes;
      const needed = available + this.frameBytes;
      const resource = `kv cache: cold tier ${this.#file.name}`;
      throw new CapacityError({ resource, needed, available, unit: 'bytes' });
    }
    return this.#numFrames++;
  }

  #beginWrite(pageId: number): PendingWrites {
    const writes = this.#pendingWrites.get(pageId) ?? { count: 0, deletedAt: 0 };
    this.#pendingWrites.set(pageId, writes);
    writes.count++;
    return writes;
  }

  /** Adopts a valid frame of the file unless a newer version of the page is known. */
  #adopt(frame: number, { pageId, generation, positions }: FrameHeader): void {
    this.#generation = Math.max(this.#generation, generation);
    const known = this.#entries.get(pageId);
    if (known !== undefined && known.generation > generation) {
      this.#freeFrames.push(frame);
      return;
    }
    if (known !== undefined) this.#retire(known);
    this.#entries.set(pageId, { frame, generation, positions, numReaders: 0, isCurrent: true });
  }

  #retire(entry: Entry): void {
    entry.isCurrent = false;
    if (entry.numReaders === 0) this.#freeFrames.push(entry.frame);
  }

  async #readParts(begin: number, header: Uint8Array, page: Uint8Array): Promise<void> {
    const file = this.#file;
    if (file.readParts !== undefined) {
      await file.readParts(begin, [header, page]);
      return;
    }
    // both must end before the buffers are reused
    const results = await Promise.allSettled([file.read(begin, header), file.read(begin + header.byteLength, page)]);
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }
}

/** Why a frame is not the expected version of a page. */
function reasonAgainst(state: FrameState, pageId: number, generation: number): string | undefined {
  if (state.kind === 'empty') return 'the frame is empty';
  if (state.kind !== 'valid') return state.reason;
  const { header } = state;
  if (header.pageId === pageId && header.generation === generation) return undefined;
  return `the frame holds page ${header.pageId}, generation ${header.generation}`;
}

function filledOf(positions: Iterable<number>): number[] {
  return [...positions].filter((position) => position >= 0);
}

/** @throws {ArgumentError} for bytes that are not a whole page */
export function checkPage({ byteLength }: Uint8Array, pageBytes: number): void {
  if (byteLength === pageBytes) return;
  throw new ArgumentError({ argument: 'page', expected: `${pageBytes} bytes`, actual: String(byteLength) });
}
