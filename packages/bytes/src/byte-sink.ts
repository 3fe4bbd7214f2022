/** The contract of everything that bytes can be written to, and a sink in memory. */
import { ReleasedError } from '@winnow/tensor';
import { allocate } from './read-bytes.js';
import { checkCount } from './range.js';

/** Where bytes go. Nothing is visible at the destination before `close` has succeeded. */
export interface ByteSink {
  /** What to call it in messages. */
  readonly name: string;
  /** End of the last byte written so far. */
  readonly sizeBytes: number;
  /**
   * Writes at `byteOffset`, by default at the end. A gap that is never written reads as zeros. The caller leaves
   * `bytes` unchanged until the promise settles.
   * @throws {IoError} when writing fails; the sink is then aborted
   */
  write(bytes: Uint8Array, byteOffset?: number): Promise<void>;
  /** Finishes and publishes. @throws {IoError} when that fails; the sink is then aborted */
  close(): Promise<void>;
  /** Discards everything. Harmless after `close` and when called twice. */
  abort(): Promise<void>;
}

/** A sink that keeps the bytes in memory. */
export interface MemorySink extends ByteSink {
  /** What was written: a view, valid until the next write. @throws {ReleasedError} after `abort` */
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
