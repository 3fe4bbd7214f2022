/** Bytes in memory as a source. */
import { ReleasedError } from '@winnow/tensor';
import type { ByteSource, ReadOptions } from './byte-source.js';
import { checkRange } from './range.js';

/**
 * A source over `bytes`, which are not copied: later changes to them are seen by later reads.
 * Closing drops the reference.
 */
export function memorySource(bytes: ArrayBuffer | Uint8Array, name = 'memory'): ByteSource {
  return new MemorySource(bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes), name);
}

class MemorySource implements ByteSource {
  readonly name: string;
  readonly sizeBytes: number;
  #bytes: Uint8Array | undefined;

  constructor(bytes: Uint8Array, name: string) {
    this.name = name;
    this.sizeBytes = bytes.byteLength;
    this.#bytes = bytes;
  }

  async read(byteOffset: number, target: Uint8Array, options?: ReadOptions): Promise<void> {
    options?.signal?.throwIfAborted();
    if (this.#bytes === undefined) throw new ReleasedError(this.name);
    checkRange(this.name, this.sizeBytes, byteOffset, target.byteLength);
    target.set(this.#bytes.subarray(byteOffset, byteOffset + target.byteLength));
  }

  async close(): Promise<void> {
    this.#bytes = undefined;
  }
}
