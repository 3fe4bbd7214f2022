/** Checksums of what passes through. */
import { createHash } from 'node:crypto';
import type { ByteSource } from '@winnow/bytes';
import { IoError } from '@winnow/tensor';
import { checkOffset, type BlobContent, type ReadBlobOptions } from './blob-store.js';

/** Counts and hashes parts. */
export class Checksum {
  readonly #hash = createHash('sha256');
  sizeBytes = 0;

  add(bytes: Uint8Array): void {
    this.#hash.update(bytes);
    this.sizeBytes += bytes.byteLength;
  }

  /** @throws {IoError} when another one was expected */
  end(source: string, expected: string | undefined): string {
    const actual = this.#hash.digest('hex');
    if (expected !== undefined && expected.toLowerCase() !== actual) {
      throw new IoError({ source, message: `the checksum differs, expected sha256 ${expected}, got ${actual}` });
    }
    return actual;
  }
}

/**
 * Reads a blob in parts, and closes it.
 * @param name for errors
 * @throws {IoError} when its checksum differs; parts from `byteOffset` on are not checked
 */
export async function* readParts(
  source: ByteSource,
  name: string,
  partBytes: number,
  { byteOffset = 0, sha256, signal }: ReadBlobOptions,
): AsyncGenerator<Uint8Array, void, void> {
  try {
    checkOffset(byteOffset, source.sizeBytes);
    const checksum = new Checksum();
    const buffer = new Uint8Array(Math.min(partBytes, source.sizeBytes - byteOffset));
    for (let offset = byteOffset; offset < source.sizeBytes;) {
      const part = buffer.subarray(0, Math.min(buffer.byteLength, source.sizeBytes - offset));
      await source.read(offset, part, signal === undefined ? {} : { signal });
      if (byteOffset === 0) checksum.add(part);
      yield part;
      offset += part.byteLength;
    }
    if (byteOffset === 0) checksum.end(name, sha256);
  } finally {
    await source.close();
  }
}

/** The parts as they are, each counted before it passes. */
export async function* counted(
  content: BlobContent,
  checksum: Checksum,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array, void, void> {
  for await (const bytes of content) {
    signal?.throwIfAborted();
    checksum.add(bytes);
    yield bytes;
  }
}
