/** Reads a blob as one stream, and continues after a failure from the byte where it occurred. */
import { Retries } from '@winnow/bytes';
import { BlobError, changedBlob } from './blob-error.js';
import { endOf, isWhole, type ReadBlobOptions } from './blob-store.js';
import { Checksum } from './checksum.node.js';

/** What a store sends. */
export interface BlobAnswer {
  /** Of the whole content. */
  readonly sizeBytes: number;
  /** Begins at the byte that was asked for. */
  readonly body: AsyncIterable<Uint8Array>;
  /** Of the content, if the store tells. */
  readonly version: string | undefined;
  /** Ends the answer without reading its body. */
  readonly discard?: () => Promise<void>;
}

/** How a store is asked for contents. */
export interface BlobRequest {
  /** Name in errors. */
  readonly source: string;
  /** Maximum number of attempts without progress. */
  readonly maxAttempts: number;
  /** Delay after the first failure in milliseconds; doubles with each. A store may ask for a longer one. */
  readonly retryDelayMs: number;
  /**
   * Asks for the bytes from `offset` up to `end`, or up to the end of the content when that is undefined.
   * @param version that is wanted: that of the first answer, or of the caller
   */
  open(offset: number, end: number | undefined, version: string | undefined): Promise<BlobAnswer>;
  /** What an error of `open` or of a body means. Those with the reason `unavailable` are tried again. */
  errorOf(cause: unknown): unknown;
}

/**
 * The content in parts. The first answer says how long it is, so a read takes one request unless it is interrupted. All of them have
 * to be of one version.
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
  let { version } = options;
  const retries = new Retries({ maxRetries: request.maxAttempts - 1, delayMs: request.retryDelayMs });
  for (let offset = byteOffset; !isOpen || offset < (end as number);) {
    const before = offset;
    try {
      const answer = await request.open(offset, end, version);
      const { sizeBytes, body } = answer;
      if (version !== undefined && answer.version !== undefined && answer.version !== version) {
        await answer.discard?.();
        throw changedBlob(request.source, version, answer.version);
      }
      version ??= answer.version;
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
      if (!BlobError.isInstance(error) || error.reason !== 'unavailable') throw error;
      if (!(await retries.next(offset > before, error.retryAfterMs, signal))) throw error;
    }
  }
  checksum?.end(request.source, sha256);
}

function closed(source: string, byteOffset: number, end: number): BlobError {
  const message = `the connection was closed, expected bytes up to ${end}`;
  return new BlobError({ source, byteOffset, reason: 'unavailable', message });
}
