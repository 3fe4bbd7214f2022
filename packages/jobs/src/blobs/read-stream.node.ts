/** Reads a blob as one stream, and continues after a failure from the byte where it occurred. */
import { setTimeout as wait } from 'node:timers/promises';
import { BlobError } from './blob-error.js';
import { endOf, isWhole, type ReadBlobOptions } from './blob-store.js';
import { Checksum } from './checksum.node.js';

/** What a store sends. */
export interface BlobAnswer {
  /** Of the whole content. */
  readonly sizeBytes: number;
  /** Begins at the byte that was asked for. */
  readonly body: AsyncIterable<Uint8Array>;
}

/** How a store is asked for contents. */
export interface BlobRequest {
  /** Name in errors. */
  readonly source: string;
  /** Maximum number of attempts without progress. */
  readonly maxAttempts: number;
  /** Delay after the first failure in milliseconds; doubles with each. */
  readonly retryDelayMs: number;
  /**
   * Asks for the bytes from `offset` up to `end`, or up to the end of the content when that is undefined. Later calls have to give
   * the version of the first one.
   */
  open(offset: number, end: number | undefined): Promise<BlobAnswer>;
  /** What an error of `open` or of a body means. Those with the reason `unavailable` are tried again. */
  errorOf(cause: unknown): unknown;
}

/**
 * The content in parts. The first answer says how long it is, so a read takes one request unless it is interrupted.
 * @throws {ArgumentError} for an offset beyond the end
 * @throws {BlobError} when reading fails, or the checksum is another one, if all of it is read
 */
export async function* readStream(
  request: BlobRequest,
  options: ReadBlobOptions,
): AsyncGenerator<Uint8Array, void, void> {
  const { byteOffset = 0, byteLength, sha256, signal } = options;
  const wanted = endOf(options, Number.MAX_SAFE_INTEGER);
  let end = byteLength === undefined ? undefined : wanted;
  let checksum: Checksum | undefined;
  let isOpen = false;
  let numFailures = 0;
  for (let offset = byteOffset; !isOpen || offset < (end as number);) {
    const before = offset;
    try {
      const { sizeBytes, body } = await request.open(offset, end);
      if (!isOpen) {
        end = endOf(options, sizeBytes);
        checksum = isWhole(options, end, sizeBytes) ? new Checksum() : undefined;
        isOpen = true;
      }
      for await (const received of body) {
        const bytes = received.subarray(0, (end as number) - offset); // of a store that does not know ranges
        checksum?.add(bytes);
        offset += bytes.byteLength;
        yield bytes;
        if (offset === end) break;
      }
      if (offset < (end as number)) throw closed(request.source, offset, end as number);
    } catch (cause) {
      const error = request.errorOf(cause);
      numFailures = offset > before ? 1 : numFailures + 1;
      const isTransient = BlobError.isInstance(error) && error.reason === 'unavailable';
      if (!isTransient || numFailures >= request.maxAttempts) throw error;
      await wait(request.retryDelayMs * 2 ** (numFailures - 1), undefined, signal && { signal }).catch(() => undefined);
      signal?.throwIfAborted();
    }
  }
  checksum?.end(request.source, sha256);
}

function closed(source: string, byteOffset: number, end: number): BlobError {
  const message = `the connection was closed, expected bytes up to ${end}`;
  return new BlobError({ source, byteOffset, reason: 'unavailable', message });
}
