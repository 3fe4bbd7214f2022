/**
 * Reads a source from front to back for header parsers. `ensure` waits for bytes and the getters are synchronous, so a
 * loop over many small fields needs one `await` per chunk. Little-endian throughout.
 */
import { FormatError, invariant } from '@winnow/tensor';
import type { ByteSource } from './byte-source.js';
import { allocate } from './read-bytes.js';
import { checkCount } from './range.js';

/** Options of `ByteCursor`. */
export interface ByteCursorOptions {
  /** Where to start. Default 0. */
  readonly byteOffset?: number;
  /** Where the readable range ends. Default: the end of the source. */
  readonly endOffset?: number;
  /** Number of bytes of the first read. Each later read is twice as large, up to `maxChunkBytes`. Default 64 KiB. */
  readonly firstChunkBytes?: number;
  /** Default 4 MiB. */
  readonly maxChunkBytes?: number;
  readonly signal?: AbortSignal;
}

/**
 * A position in a source with a window of bytes read ahead. Reads at most as many bytes ahead as were consumed (never
 * more than `maxChunkBytes`), plus the first chunk.
 *
 * Every getter takes the name of the field it reads and throws `FormatError` with the field's offset when the range
 * ends too early. Reading bytes that `ensure` has not fetched is a bug of the caller.
 */
export class ByteCursor {
  readonly source: ByteSource;
  readonly endOffset: number;
  readonly #signal: AbortSignal | undefined;
  readonly #maxChunkBytes: number;
  #chunkBytes: number;
  // Window: file range [#windowOffset, #windowOffset + #window.byteLength). Every refill makes a new one, so views
  // returned by `bytes` never change.
  #window: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  #view: DataView = new DataView(this.#window.buffer);
  #windowOffset: number;
  #index = 0;

  constructor(source: ByteSource, options: ByteCursorOptions = {}) {
    this.source = source;
    this.#windowOffset = options.byteOffset ?? 0;
    this.endOffset = Math.min(options.endOffset ?? source.sizeBytes, source.sizeBytes);
    this.#chunkBytes = options.firstChunkBytes ?? 64 * 1024;
    this.#maxChunkBytes = options.maxChunkBytes ?? 4 * 1024 * 1024;
    this.#signal = options.signal;
    checkCount('byteOffset', this.#windowOffset);
    checkCount('endOffset', this.endOffset);
  }

  /** Offset of the next byte in the source. */
  get position(): number {
    return this.#windowOffset + this.#index;
  }

  /** Bytes between the position and the end. */
  get remainingBytes(): number {
    return Math.max(0, this.endOffset - this.position);
  }

  /** Bytes that the getters can read without `ensure`. */
  get bufferedBytes(): number {
    return this.#window.byteLength - this.#index;
  }

  /**
   * Fetches until at least `numBytes` bytes are buffered. Cheap when they already are.
   * @throws {FormatError} when fewer remain; memory is allocated only after that check
   */
  async ensure(numBytes: number, field: string): Promise<void> {
    if (this.bufferedBytes >= numBytes) return;
    this.#checkRemaining(numBytes, field);
    const start = this.position;
    const sizeBytes = Math.min(Math.max(numBytes, this.#chunkBytes), this.endOffset - start);
    const kept = this.#window.subarray(this.#index);
    const window = allocate(sizeBytes, `${this.source.name}: ${field}`);
    window.set(kept);
    const options = this.#signal === undefined ? undefined : { signal: this.#signal };
    await this.source.read(start + kept.byteLength, window.subarray(kept.byteLength), options);
    this.#window = window;
    this.#view = new DataView(window.buffer);
    this.#windowOffset = start;
    this.#index = 0;
    this.#chunkBytes = Math.min(this.#chunkBytes * 2, this.#maxChunkBytes);
  }

  /** Skips bytes without reading them. */
  skip(numBytes: number, field: string): void {
    this.#checkRemaining(numBytes, field);
    const step = Math.min(numBytes, this.bufferedBytes);
    this.#index += step;
    if (step < numBytes) {
      this.#windowOffset = this.position + (numBytes - step);
      this.#window = new Uint8Array(0);
      this.#view = new DataView(this.#window.buffer);
      this.#index = 0;
    }
  }

  uint8(field: string): number {
    return this.#view.getUint8(this.#take(1, field));
  }

  int8(field: string): number {
    return this.#view.getInt8(this.#take(1, field));
  }

  uint16(field: string): number {
    return this.#view.getUint16(this.#take(2, field), true);
  }

  int16(field: string): number {
    return this.#view.getInt16(this.#take(2, field), true);
  }

  uint32(field: string): number {
    return this.#view.getUint32(this.#take(4, field), true);
  }

  int32(field: string): number {
    return this.#view.getInt32(this.#take(4, field), true);
  }

  uint64(field: string): bigint {
    return this.#view.getBigUint64(this.#take(8, field), true);
  }

  int64(field: string): bigint {
    return this.#view.getBigInt64(this.#take(8, field), true);
  }

  float32(field: string): number {
    return this.#view.getFloat32(this.#take(4, field), true);
  }

  float64(field: string): number {
    return this.#view.getFloat64(this.#take(8, field), true);
  }

  /**
   * A 64-bit unsigned count or offset as a number.
   * @throws {FormatError} when it is above 2^53 - 1, which exceeds any file size
   */
  size64(field: string): number {
    const byteOffset = this.position;
    const start = this.#take(8, field);
    const high = this.#view.getUint32(start + 4, true);
    if (high > 0x1fffff) {
      throw new FormatError({
        source: this.source.name,
        byteOffset,
        field,
        message: `expected at most 2^53 - 1, got ${this.#view.getBigUint64(start, true)}`,
      });
    }
    return high * 0x100000000 + this.#view.getUint32(start, true);
  }

  /**
   * The next bytes as a view that stays valid; it keeps its whole chunk alive, so copy the bytes if you retain them.
   */
  bytes(numBytes: number, field: string): Uint8Array<ArrayBuffer> {
    const start = this.#take(numBytes, field);
    return this.#window.subarray(start, start + numBytes);
  }

  #take(numBytes: number, field: string): number {
    const start = this.#index;
    if (numBytes > this.#window.byteLength - start) {
      this.#checkRemaining(numBytes, field);
      invariant(false, `ByteCursor: ${field} was read before ensure(${numBytes})`);
    }
    this.#index = start + numBytes;
    return start;
  }

  #checkRemaining(numBytes: number, field: string): void {
    if (numBytes <= this.remainingBytes) return;
    throw new FormatError({
      source: this.source.name,
      byteOffset: this.position,
      field,
      message: `unexpected end, expected ${numBytes} more bytes, got ${this.remainingBytes}`,
    });
  }
}
