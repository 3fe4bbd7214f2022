/** The contract of blob stores: inputs, outputs and models, streamed by key, never whole in memory. */
import { ArgumentError, type OptionNames } from '@winnow/tensor';

export interface BlobInfo {
  readonly key: string;
  readonly sizeBytes: number;
  /** Milliseconds since 1970, where the store knows it. */
  readonly modifiedAtMs?: number;
  /** Changes when the content is replaced, where the store knows it: an ETag, for example. */
  readonly version?: string;
}

export interface WrittenBlob extends BlobInfo {
  /** In hexadecimal digits; pass it to later reads to verify them. */
  readonly sha256: string;
  /** Number of bytes that an interrupted write had stored and this one did not send again. */
  readonly resumedBytes: number;
}

export interface BlobCallOptions {
  readonly signal?: AbortSignal;
}

export interface WriteBlobOptions extends BlobCallOptions {
  /** The checksum that the content must have; otherwise nothing is stored. Default: not checked. */
  readonly sha256?: string;
  /** Store nothing when the key has content. Only one of several concurrent writers succeeds. Default false. */
  readonly ifAbsent?: boolean;
  /**
   * Keep what a failed or killed write has stored, and continue there: the content is passed from its beginning again, and what
   * the store already has is compared instead of sent. Stores without `canResume` start over. Default false.
   */
  readonly resume?: boolean;
}

export interface ReadBlobOptions extends BlobCallOptions {
  /** First byte. Default 0. */
  readonly byteOffset?: number;
  /** Maximum number of bytes. Default: up to the end. */
  readonly byteLength?: number;
  /** The checksum of the whole content; verified at the end of a read of all bytes. Default: not checked. */
  readonly sha256?: string;
  /** The version that `stat` returned: others fail with the reason `changed`. Default: the current one, for all bytes of a read. */
  readonly version?: string;
}

export type BlobContent = Iterable<Uint8Array> | AsyncIterable<Uint8Array>;

export interface BlobStore {
  /** Name in error messages. */
  readonly name: string;
  /** Whether `list` works. */
  readonly canList: boolean;
  /** Whether `resume` saves anything. */
  readonly canResume: boolean;
  /**
   * Stores content, replacing that of the key. It becomes visible only when it is complete.
   * @throws {ArgumentError} for an invalid key
   * @throws {BlobError} when writing fails, the checksum is another one, or there is content despite `ifAbsent`
   */
  write(key: string, content: BlobContent, options?: WriteBlobOptions): Promise<WrittenBlob>;
  /**
   * The content, in parts that are valid until the next one is requested.
   * @throws {ArgumentError} for an invalid key, or an offset beyond the end
   * @throws {BlobError} when there is none, reading fails, or the checksum is another one
   */
  read(key: string, options?: ReadBlobOptions): AsyncIterable<Uint8Array>;
  /** Undefined when there is no content. @throws {BlobError} */
  stat(key: string, options?: BlobCallOptions): Promise<BlobInfo | undefined>;
  /** @returns whether there was content @throws {BlobError} */
  delete(key: string, options?: BlobCallOptions): Promise<boolean>;
  /** Keys that begin with a prefix, in the order of their characters. @throws {ArgumentError} unless `canList` @throws {BlobError} */
  list(prefix: string, options?: BlobCallOptions): Promise<BlobInfo[]>;
}

const maxKeyLength = 512;
const keyPattern = /^[A-Za-z0-9_-][A-Za-z0-9._-]*(\/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$/;

export const callOptionNames: OptionNames<BlobCallOptions> = { signal: true };
export const readOptionNames: OptionNames<ReadBlobOptions> = {
  byteOffset: true,
  byteLength: true,
  sha256: true,
  signal: true,
  version: true,
};
export const writeOptionNames: OptionNames<WriteBlobOptions> = {
  sha256: true,
  ifAbsent: true,
  resume: true,
  signal: true,
};

/** @throws {ArgumentError} unless the key is a path whose names consist of letters, digits, `_`, `-` and `.`, and do not begin with `.` */
export function checkKey(key: string): void {
  if (key.length <= maxKeyLength && keyPattern.test(key) && !key.endsWith('.part')) return;
  const expected = 'names of letters, digits, "_", "-" and ".", separated by "/"';
  throw new ArgumentError({ argument: 'key', expected, actual: `'${key.slice(0, maxKeyLength)}'` });
}

/** @throws {ArgumentError} for an offset beyond the end */
export function checkOffset(byteOffset: number, sizeBytes: number): void {
  if (Number.isSafeInteger(byteOffset) && byteOffset >= 0 && byteOffset <= sizeBytes) return;
  const expected = `an integer from 0 to ${sizeBytes}`;
  throw new ArgumentError({ argument: 'byteOffset', expected, actual: String(byteOffset) });
}

/**
 * The end of the range that `read` returns.
 * @throws {ArgumentError} for an offset beyond the end, or a negative length
 */
export function endOf({ byteOffset = 0, byteLength = Infinity }: ReadBlobOptions, sizeBytes: number): number {
  checkOffset(byteOffset, sizeBytes);
  if (byteLength === Infinity) return sizeBytes;
  if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
    const expected = 'an integer from 0';
    throw new ArgumentError({ argument: 'byteLength', expected, actual: String(byteLength) });
  }
  return Math.min(sizeBytes, byteOffset + byteLength);
}

/** Whether a read gets all bytes, so that their checksum can be compared. */
export function isWhole({ byteOffset = 0 }: ReadBlobOptions, end: number, sizeBytes: number): boolean {
  return byteOffset === 0 && end === sizeBytes;
}
