/** Bytes in memory as a source. */
import { ReleasedError } from '@winnow/tensor';
import type { ByteSource } from './byte-source.js';
import { checkRange } from './range.js';

/**
 * A source over `bytes`, which are not copied: later changes to them are seen by later reads.
 * Closing drops the reference.
 */
export function memorySource(bytes: ArrayBuffer | Uint8Array, name = 'memory'): ByteSource {
  let view: Uint8Array | undefined = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
  const sizeBytes = view.byteLength;
  return {
    name,
    sizeBytes,
    async read(byteOffset, target, options) {
      options?.signal?.throwIfAborted();
      if (view === undefined) throw new ReleasedError(name);
      checkRange(name, sizeBytes, byteOffset, target.byteLength);
      target.set(view.subarray(byteOffset, byteOffset + target.byteLength));
    },
    async close() {
      view = undefined;
    },
  };
}
