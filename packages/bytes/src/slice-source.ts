/** A slice of another source, for formats nested in others. */
import { IoError, ReleasedError } from '@winnow/tensor';
import type { ByteSource } from './byte-source.js';
import { checkCount, checkRange } from './range.js';

/**
 * The bytes `[byteOffset, byteOffset + sizeBytes)` of `source`, counted from 0. The slice does not own `source`:
 * closing it does not close `source`.
 * @throws {IoError} when the range is not inside `source`
 */
export function sliceSource(
  source: ByteSource,
  byteOffset: number,
  sizeBytes: number = source.sizeBytes - byteOffset,
): ByteSource {
  if (sizeBytes < 0) {
    throw new IoError({
      source: source.name,
      byteOffset,
      message: `slice starts after the end (${source.sizeBytes} bytes)`,
    });
  }
  checkCount('sizeBytes', sizeBytes);
  checkRange(source.name, source.sizeBytes, byteOffset, sizeBytes);
  const name = `${source.name}[${byteOffset}..${byteOffset + sizeBytes}]`;
  let open = true;
  return {
    name,
    sizeBytes,
    async read(offset, target, options) {
      if (!open) throw new ReleasedError(name);
      checkRange(name, sizeBytes, offset, target.byteLength);
      await source.read(byteOffset + offset, target, options);
    },
    async close() {
      open = false;
    },
  };
}
