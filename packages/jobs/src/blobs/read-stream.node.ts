/** Reads a blob as one stream. After a failure, it continues from the byte where it occurred. */
import { Retries } from '@winnow/bytes';
import { BlobError, changedBlob } from './blob-error.js';
import { endOf, isWhole, type ReadBlobOptions } from './blob-store.js';
import { Checksum } from './checksum.node.js';

/** A response of a store. */
export interface BlobAnswer {
  /** Size of the whole content. */
  readonly sizeBytes: number;
  /** The bytes from the requested offset on. */
  readonly body: AsyncIterable<Uint8Array>;
  /** Version of the content, if the store reports it. */
  readonly version: string | undefined;
  /** Ends the answer without reading its body. */
  readonly discard?: () => Promise<void>;
}

/** How content is requested from a store. */
export interface BlobRequest {
  /** Name in errors. */
  readonly source: string;
  /** Maximum number of attempts without progress. */
  readonly maxAttempts: number;
  /** Delay after the first failure in milliseconds; doubles with each. A store may ask for a longer one. */
  readonly retryDelayMs: number;
  /**
   * Requests the bytes from `offset` up to `end`, or up to the end of the content when that is undefined.
   * @param version the required version: that of the caller, or of the first response
   */
  open(offset: number, end: number | undefined, version: string | undefined): Promise<BlobAnswer>;
  /** Converts an error of `open` or of a body. Errors with the reason `unavailable` are retried. */
  errorOf(cause: unknown): unknown;
}

/**
 * The content in parts. The first response contains the size, so a read takes one request unless it is interrupted. All responses
 * must have the same version.
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
        const bytes = received.subarray(0, (end as number) - offset); // a store without ranges sends more
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
