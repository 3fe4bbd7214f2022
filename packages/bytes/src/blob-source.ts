/** A `Blob` (in browsers: a selected `File`) as a source. */
import { IoError, ReleasedError } from '@winnow/tensor';
import type { ByteSource } from './byte-source.js';
import { checkRange, messageOf } from './range.js';

/** A source over `blob`; each read copies one slice of it, never the whole. The name defaults to the `File`'s. */
export function blobSource(blob: Blob, name: string = nameOf(blob)): ByteSource {
  let open = true;
  return {
    name,
    sizeBytes: blob.size,
    async read(byteOffset, target, options) {
      options?.signal?.throwIfAborted();
      if (!open) throw new ReleasedError(name);
      checkRange(name, blob.size, byteOffset, target.byteLength);
      let bytes: ArrayBuffer;
      try {
        bytes = await blob.slice(byteOffset, byteOffset + target.byteLength).arrayBuffer();
      } catch (error) {
        throw new IoError(
          { source: name, byteOffset, message: `cannot be read: ${messageOf(error)}` },
          { cause: error },
        );
      }
      options?.signal?.throwIfAborted();
      if (bytes.byteLength !== target.byteLength) {
        throw new IoError({
          source: name,
          byteOffset,
          message: `unexpected end, expected ${target.byteLength} bytes, got ${bytes.byteLength}`,
        });
      }
      target.set(new Uint8Array(bytes));
    },
    async close() {
      open = false;
    },
  };
}

function nameOf(blob: Blob): string {
  return 'name' in blob ? String(blob.name) : 'blob';
}
