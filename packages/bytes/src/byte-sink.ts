/** The contract of byte sinks, and a sink in memory. */
import { ReleasedError } from '@winnow/tensor';
import { allocate } from './read-bytes.js';
import { checkCount } from './range.js';

/** A destination of bytes. Nothing is visible at the destination before `close` succeeds. */
export interface ByteSink {
  /** Name in error messages. */
  readonly name: string;
  /** End of the last byte written so far. */
  readonly sizeBytes: number;
  /**
   * Writes at `byteOffset`, by default at the end. Gaps read as zeros. The caller must not modify `bytes` until the
   * promise settles.
   * @throws {IoError} when writing fails; the sink is then aborted
   */
  write(bytes: Uint8Array, byteOffset?: number): Promise<void>;
  /** Completes the file and makes it visible. @throws {IoError} when that fails; the sink is then aborted */
  close(): Promise<void>;
  /** Discards everything. A no-op after `close` and on repeated calls. */
  abort(): Promise<void>;
}

/** A sink that stores the bytes in memory. */
export interface MemorySink extends ByteSink {
  /** The written bytes: a view that is valid until the next write. @throws {ReleasedError} after `abort` */
  toBytes(): Uint8Array<ArrayBuffer>;
}

export function memorySink(name = 'memory'): MemorySink {
  return new GrowingSink(name);
}

class GrowingSink implements MemorySink {
  readonly name: string;
  #buffer: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  #sizeBytes = 0;
  #state: 'open' | 'closed' | 'aborted' = 'open';

  constructor(name: string) {
    this.name = name;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  async write(bytes: Uint8Array, byteOffset: number = this.#sizeBytes): Promise<void> {
    if (this.#state !== 'open') throw new ReleasedError(this.name);
    checkCount('byteOffset', byteOffset);
    const end = byteOffset + bytes.byteLength;
    if (end > this.#buffer.byteLength) {
      const grown = allocate(Math.max(end, this.#buffer.byteLength * 2), this.name);
      grown.set(this.#buffer.subarray(0, this.#sizeBytes));
      this.#buffer = grown;
    }
    this.#buffer.set(bytes, byteOffset);
    this.#sizeBytes = Math.max(this.#sizeBytes, end);
  }

  async close(): Promise<void> {
    if (this.#state === 'aborted') throw new ReleasedError(this.name);
    this.#state = 'closed';
  }

  async abort(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'aborted';
    this.#buffer = new Uint8Array(0);
    this.#sizeBytes = 0;
  }

  toBytes(): Uint8Array<ArrayBuffer> {
    if (this.#state === 'aborted') throw new ReleasedError(this.name);
    return this.#buffer.subarray(0, this.#sizeBytes);
  }
}
