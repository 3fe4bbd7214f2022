/** The contract of blob stores: inputs, outputs and models, streamed by key, never whole in memory. */
import { ArgumentError } from '@winnow/tensor';

export interface BlobInfo {
  readonly key: string;
  readonly sizeBytes: number;
  /** Milliseconds since 1970, where the store knows it. */
  readonly modifiedAtMs?: number;
}

export interface WrittenBlob extends BlobInfo {
  /** In hexadecimal digits. Whoever keeps it can have later reads checked. */
  readonly sha256: string;
}

export interface WriteBlobOptions {
  /** What the content must have; otherwise nothing is stored. Default: not checked. */
  readonly sha256?: string;
  readonly signal?: AbortSignal;
}

export interface ReadBlobOptions {
  /** First byte. Default 0. */
  readonly byteOffset?: number;
  /** What the whole content must have; checked at the end of a read from byte 0. Default: not checked. */
  readonly sha256?: string;
  readonly signal?: AbortSignal;
}

export type BlobContent = Iterable<Uint8Array> | AsyncIterable<Uint8Array>;

export interface BlobStore {
  /** Name in error messages. */
  readonly name: string;
  /** Whether `list` works. */
  readonly canList: boolean;
  /**
   * Stores content, replacing that of the key. It is visible when it is complete, or never.
   * @throws {ArgumentError} for an invalid key
   * @throws {IoError} when writing fails, or the checksum is another one
   */
  write(key: string, content: BlobContent, options?: WriteBlobOptions): Promise<WrittenBlob>;
  /**
   * The content, in parts that are valid until the next one is asked for.
   * @throws {ArgumentError} for an invalid key, or an offset beyond the end
   * @throws {IoError} when there is none, reading fails, or the checksum is another one
   */
  read(key: string, options?: ReadBlobOptions): AsyncIterable<Uint8Array>;
  /** Undefined when there is no content. */
  stat(key: string): Promise<BlobInfo | undefined>;
  /** @returns whether there was content */
  delete(key: string): Promise<boolean>;
  /** Keys that begin with a prefix, in the order of their characters. @throws {ArgumentError} unless `canList` */
  list(prefix: string): Promise<BlobInfo[]>;
}

const maxKeyLength = 512;
const keyPattern = /^[A-Za-z0-9_-][A-Za-z0-9._-]*(\/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$/;

/** @throws {ArgumentError} unless the key is a path of names of letters, digits, `_`, `-` and `.`, no name begins with `.` */
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
