/** Checksums of streamed content. */
import { createHash } from 'node:crypto';
import type { ByteSource } from '@winnow/bytes';
import { BlobError } from './blob-error.js';
import { endOf, isWhole, type BlobContent, type ReadBlobOptions } from './blob-store.js';

/** Counts and hashes the bytes of parts. */
export class Checksum {
  readonly #hash = createHash('sha256');
  sizeBytes = 0;

  add(bytes: Uint8Array): void {
    this.#hash.update(bytes);
    this.sizeBytes += bytes.byteLength;
  }

  /** @throws {BlobError} when the checksum is not the expected one */
  end(source: string, expected: string | undefined): string {
    const actual = this.#hash.digest('hex');
    if (expected !== undefined && expected.toLowerCase() !== actual) {
      const message = `the checksum differs, expected sha256 ${expected}, got ${actual}`;
      throw new BlobError({ source, reason: 'checksum', message });
    }
    return actual;
  }
}

/**
 * Reads a blob in parts, and closes it.
 * @param name for errors
 * @throws {IoError} when its checksum differs, if all of it is read
 */
export async function* readParts(
  source: ByteSource,
  name: string,
  partBytes: number,
  options: ReadBlobOptions,
): AsyncGenerator<Uint8Array, void, void> {
  const { byteOffset = 0, sha256, signal } = options;
  try {
    const end = endOf(options, source.sizeBytes);
    const checksum = isWhole(options, end, source.sizeBytes) ? new Checksum() : undefined;
    const buffer = new Uint8Array(Math.min(partBytes, end - byteOffset));
    for (let offset = byteOffset; offset < end;) {
      const part = buffer.subarray(0, Math.min(buffer.byteLength, end - offset));
      await source.read(offset, part, signal === undefined ? {} : { signal });
      checksum?.add(part);
      yield part;
      offset += part.byteLength;
    }
    checksum?.end(name, sha256);
  } finally {
    await source.close();
  }
}

/** Passes parts on unchanged, after counting each. */
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
