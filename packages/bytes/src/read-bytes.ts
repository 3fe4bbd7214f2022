/** Reads into newly allocated memory. */
import { CapacityError } from '@winnow/tensor';
import type { ByteSource } from './byte-source.js';
import { checkCount, checkRange } from './range.js';

/**
 * The bytes `[byteOffset, byteOffset + numBytes)` of `source` in a new array; by default everything from `byteOffset`
 * (default 0) to the end. The range is checked before memory is allocated.
 * @throws {IoError} when the range is not inside the source or reading fails
 * @throws {CapacityError} when the memory cannot be allocated
 */
export async function readBytes(
  source: ByteSource,
  byteOffset = 0,
  numBytes: number = Math.max(0, source.sizeBytes - byteOffset),
  options?: { signal?: AbortSignal },
): Promise<Uint8Array<ArrayBuffer>> {
  checkCount('numBytes', numBytes);
  checkRange(source.name, source.sizeBytes, byteOffset, numBytes);
  const bytes = allocate(numBytes, source.name);
  await source.read(byteOffset, bytes, options);
  return bytes;
}

/** @throws {CapacityError} where the engine would throw a RangeError */
export function allocate(numBytes: number, resource: string): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(numBytes);
  } catch {
    throw new CapacityError({ resource, needed: numBytes, available: 0, unit: 'bytes', hint: 'allocation failed' });
  }
}
