/**
 * Downloads one file into the blobs of the cache. Bytes are written to `<blob>.incomplete`, from which an interrupted
 * transfer resumes; after its size and hash are verified, the file is renamed to the blob. Two processes may do this
 * concurrently: both write the same bytes at the same offsets.
 */
import { createHash, type Hash } from 'node:crypto';
import { constants } from 'node:fs';
import { open, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { makeFolder } from '@winnow/bytes/node';
import { HubError, onDisk } from './hub/error.node.js';
import { messageOf } from './hub/fetch.node.js';
import { sizeIfFile, type RepoFile } from './repo-cache.node.js';

/** Opens the content of a file at a byte offset. Failures reject or end the iteration with an error. */
export type OpenContent = (byteOffset: number) => Promise<AsyncIterable<Uint8Array>>;

/** Options of `transfer`. */
export interface TransferOptions {
  readonly file: RepoFile;
  readonly blobPath: string;
  readonly openContent: OpenContent;
  readonly signal: AbortSignal | undefined;
  /**
   * Called with the number of bytes on disk: first after resuming, then periodically, and finally with the full size.
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
  const { file, blobPath, onProgress } = options;
  if ((await sizeIfFile(blobPath)) === file.sizeBytes) {
    onProgress(file.sizeBytes);
    return;
  }
  const incompletePath = `${blobPath}.incomplete`;
  const handle = await onDisk(blobPath, async () => {
    await makeFolder(dirname(blobPath));
    return open(incompletePath, constants.O_RDWR | constants.O_CREAT, 0o644);
  });
  try {
    let present = (await onDisk(incompletePath, () => handle.stat())).size;
    if (present > file.sizeBytes) present = await restart(handle, incompletePath);
    let digest = await receive(handle, incompletePath, present, options);
    if (!isExpected(file, digest) && present > 0) {
      // the partial file was corrupt: restart from the beginning
      await restart(handle, incompletePath);
      digest = await receive(handle, incompletePath, 0, options);
    }
    if (!isExpected(file, digest)) {
      await discard(handle, incompletePath, blobPath);
      throw new HubError({
        source: file.path,
        reason: 'corrupt',
        message: `hash mismatch, expected ${file.etag}, got ${digest}`,
        files: [file.path],
      });
    }
    await onDisk(incompletePath, () => handle.sync());
  } finally {
    await handle.close().catch(() => undefined);
  }
  try {
    await rename(incompletePath, blobPath);
  } catch (error) {
    // another process may have completed the same file
    if ((await sizeIfFile(blobPath)) !== file.sizeBytes) {
      await onDisk(blobPath, () => Promise.reject(error as Error));
    }
  }
}

/** Appends the content after `present` bytes and returns the hash of the whole file in hex. */
async function receive(
  handle: FileHandle,
  path: string,
  present: number,
  { file, openContent, signal, onProgress }: TransferOptions,
): Promise<string> {
  const hash = createHash(file.hash === 'sha256' ? 'sha256' : 'sha1');
  if (file.hash === 'git-sha1') hash.update(`blob ${file.sizeBytes}\0`);
  await onDisk(path, () => hashExisting(handle, present, hash, signal));
  onProgress(present);
  let position = present;
  let reported = present;
  for (let numReconnects = 0; position < file.sizeBytes; numReconnects++) {
    const start = position;
    let cause: unknown;
    try {
      for await (const chunk of await openContent(position)) {
        if (position + chunk.byteLength > file.sizeBytes) {
          throw new HubError({
            source: file.path,
            reason: 'corrupt',
            message: `expected ${file.sizeBytes} bytes, got more`,
            files: [file.path],
          });
        }
        await onDisk(path, () => writeAll(handle, chunk, position));
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
      throw new HubError(
        {
          source: file.path,
          reason: 'network',
          message:
            `the connection ended after ${position} of ${file.sizeBytes} bytes` +
            `${cause === undefined ? '' : `: ${messageOf(cause)}`} (the next call resumes from there)`,
          files: [file.path],
        },
        { cause },
      );
    }
  }
  onProgress(file.sizeBytes);
  return hash.digest('hex');
}

function isExpected(file: RepoFile, digest: string): boolean {
  return file.hash === undefined || digest === file.etag;
}

async function hashExisting(
  handle: FileHandle,
  end: number,
  hash: Hash,
  signal: AbortSignal | undefined,
): Promise<void> {
  const buffer = new Uint8Array(Math.min(hashChunkBytes, end));
  for (let position = 0; position < end;) {
    signal?.throwIfAborted();
    const { bytesRead } = await handle.read(buffer, 0, Math.min(buffer.byteLength, end - position), position);
    if (bytesRead === 0)
      throw new HubError({ source: 'cache', reason: 'disk', message: 'the incomplete file was truncated' });
    hash.update(buffer.subarray(0, bytesRead));
    position += bytesRead;
  }
}

async function writeAll(handle: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let written = 0; written < bytes.byteLength;) {
    const { bytesWritten } = await handle.write(bytes, written, bytes.byteLength - written, position + written);
    written += bytesWritten;
  }
}

async function restart(handle: FileHandle, path: string): Promise<0> {
  await onDisk(path, () => handle.truncate(0));
  return 0;
}

/** Removes the incomplete file, and the blob if another process has meanwhile renamed this same file to it. */
async function discard(handle: FileHandle, incompletePath: string, blobPath: string): Promise<void> {
  const [own, blob] = await Promise.all([handle.stat(), stat(blobPath).catch(() => undefined)]);
  await rm(incompletePath, { force: true });
  if (blob !== undefined && blob.ino === own.ino && blob.dev === own.dev) await rm(blobPath, { force: true });
}
