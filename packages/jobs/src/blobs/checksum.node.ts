/** Checksums of what passes through. */
import { createHash } from 'node:crypto';
import { IoError } from '@winnow/tensor';
import type { BlobContent } from './blob-store.js';

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
