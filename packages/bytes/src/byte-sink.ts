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
  let buffer: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  let sizeBytes = 0;
  let state: 'open' | 'closed' | 'aborted' = 'open';
  return {
    name,
    get sizeBytes() {
      return sizeBytes;
    },
    async write(bytes, byteOffset = sizeBytes) {
      if (state !== 'open') throw new ReleasedError(name);
      checkCount('byteOffset', byteOffset);
      const end = byteOffset + bytes.byteLength;
      if (end > buffer.byteLength) {
        const grown = allocate(Math.max(end, buffer.byteLength * 2), name);
        grown.set(buffer.subarray(0, sizeBytes));
        buffer = grown;
      }
      buffer.set(bytes, byteOffset);
      sizeBytes = Math.max(sizeBytes, end);
    },
    async close() {
      if (state === 'aborted') throw new ReleasedError(name);
      state = 'closed';
    },
    async abort() {
      if (state !== 'open') return;
      state = 'aborted';
      buffer = new Uint8Array(0);
      sizeBytes = 0;
    },
    toBytes() {
      if (state === 'aborted') throw new ReleasedError(name);
      return buffer.subarray(0, sizeBytes);
    },
  };
}
