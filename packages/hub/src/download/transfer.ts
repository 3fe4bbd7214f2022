/**
 * Downloads one file into a part of the cache, from which an interrupted transfer resumes. After its size and hash are
 * verified, the part becomes the file. Where a store lets two downloads write a part at the same time, both write the same
 * bytes at the same offsets.
 */
import { HubError } from './error.js';
import { messageOf } from './fetch.js';
import type { RepoFile } from './repo-file.js';
import type { PartFile, RepoStore, StreamHash } from './store.js';

/** Opens the content of a file at a byte offset. Failures reject or end the iteration with an error. */
export type OpenContent = (byteOffset: number) => Promise<AsyncIterable<Uint8Array>>;

/** Options of `transfer`. */
export interface TransferOptions {
  readonly file: RepoFile;
  readonly store: Pick<RepoStore, 'openPart' | 'createHash'>;
  readonly openContent: OpenContent;
  readonly signal: AbortSignal | undefined;
  /**
   * Called with the number of bytes that are stored: first after resuming, then periodically, and finally with the full
   * size.
   */
  readonly onProgress: (loadedBytes: number) => void;
}

/** Maximum number of reconnects within one call; a connection that delivered nothing is not retried. */
const maxReconnects = 5;

/** Number of bytes between two progress reports. */
const progressBytes = 256 * 1024;

/** Number of bytes of an incomplete file hashed at a time. */
const hashChunkBytes = 1024 * 1024;

/**
 * @throws {HubError} `network` when the connection was lost too often (the next call resumes), `corrupt` when the
 *   content does not match its size or hash (the partial file is deleted), `disk` when it cannot be written
 */
export async function transfer(options: TransferOptions): Promise<void> {
  const { file, store, onProgress } = options;
  const part = await store.openPart(file);
  if (part === undefined) {
    onProgress(file.sizeBytes);
    return;
  }
  try {
    let present = await part.size();
    if (present > file.sizeBytes) {
      await part.clear();
      present = 0;
    }
    let digest = await receive(part, present, options);
    if (!isExpected(file, digest) && present > 0) {
      // the partial file was corrupt: restart from the beginning
      await part.clear();
      digest = await receive(part, 0, options);
    }
    if (!isExpected(file, digest)) {
      await part.discard();
      throw corrupt(file, `hash mismatch, expected ${file.etag}, got ${digest}`);
    }
    await part.complete();
  } finally {
    await part.close();
  }
}

/** Appends the content after `present` bytes and returns the hash of the whole file in hex. */
async function receive(part: PartFile, present: number, options: TransferOptions): Promise<string> {
  const { file, store, openContent, signal, onProgress } = options;
  const hash = store.createHash(file.hash === 'sha256' ? 'sha256' : 'sha1');
  if (file.hash === 'git-sha1') hash.update(new TextEncoder().encode(`blob ${file.sizeBytes}\0`));
  await hashExisting(part, present, hash, signal);
  onProgress(present);
  let position = present;
  let reported = present;
  for (let numReconnects = 0; position < file.sizeBytes; numReconnects++) {
    const start = position;
    let cause: unknown;
    try {
      for await (const chunk of await openContent(position)) {
        if (position + chunk.byteLength > file.sizeBytes) {
          throw corrupt(file, `expected ${file.sizeBytes} bytes, got more`);
        }
        await part.write(chunk, position);
        hash.update(chunk);
        position += chunk.byteLength;
        if (position - reported >= progressBytes && position < file.sizeBytes) {
          reported = position;
          onProgress(position);
        }
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof HubError) throw error;
      cause = error;
    }
    if (position < file.sizeBytes && (position === start || numReconnects === maxReconnects)) {
      throw lost(file, position, cause);
    }
  }
  onProgress(file.sizeBytes);
  return hash.digest();
}

function lost({ path, sizeBytes }: RepoFile, position: number, cause: unknown): HubError {
  const reason = cause === undefined ? '' : `: ${messageOf(cause)}`;
  const message = `the connection ended after ${position} of ${sizeBytes} bytes${reason} (the next call resumes from there)`;
  return new HubError({ source: path, reason: 'network', message, files: [path] }, { cause });
}

function corrupt({ path }: RepoFile, message: string): HubError {
  return new HubError({ source: path, reason: 'corrupt', message, files: [path] });
}

function isExpected(file: RepoFile, digest: string): boolean {
  return file.hash === undefined || digest === file.etag;
}

async function hashExisting(
  part: PartFile,
  end: number,
  hash: StreamHash,
  signal: AbortSignal | undefined,
): Promise<void> {
  const buffer = new Uint8Array(Math.min(hashChunkBytes, end));
  for (let position = 0; position < end;) {
    signal?.throwIfAborted();
    const numBytes = await part.read(buffer.subarray(0, end - position), position);
    if (numBytes === 0)
      throw new HubError({ source: 'cache', reason: 'disk', message: 'the incomplete file was truncated' });
    hash.update(buffer.subarray(0, numBytes));
    position += numBytes;
  }
}
