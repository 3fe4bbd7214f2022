/** A file as a sink: written beside its destination, renamed over it on `close`. */
import { randomUUID } from 'node:crypto';
import { open, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { IoError, ReleasedError } from '@winnow/tensor';
import type { ByteSink } from './byte-sink.js';
import { fileError } from './file-error.node.js';
import { checkCount } from './range.js';

/**
 * A sink for `path`. The bytes go to a new file `<path>.<random>.part` in the same folder; `close` flushes it to the
 * disk and renames it to `path`, replacing what was there, and `abort` or any failure removes it. So `path` is always
 * absent, the old file or the whole new one.
 * @throws {IoError} when the folder is missing or not writable, or `path` is a folder
 */
export async function fileSink(path: string): Promise<ByteSink> {
  const temporary = `${path}.${randomUUID()}.part`;
  let handle: FileHandle;
  try {
    const existing = await stat(path).catch(() => undefined);
    if (existing?.isDirectory() === true) throw new IoError({ source: path, message: 'is a folder, expected a file' });
    handle = await open(temporary, 'wx');
  } catch (error) {
    throw fileError(path, error);
  }
  let sizeBytes = 0;
  let state: 'open' | 'closed' | 'aborted' = 'open';

  async function discard(): Promise<void> {
    if (state !== 'open') return;
    state = 'aborted';
    await handle.close().catch(() => undefined);
    await rm(temporary, { force: true }).catch(() => undefined);
  }

  return {
    name: path,
    get sizeBytes() {
      return sizeBytes;
    },
    async write(bytes, byteOffset = sizeBytes) {
      if (state !== 'open') throw new ReleasedError(path);
      checkCount('byteOffset', byteOffset);
      sizeBytes = Math.max(sizeBytes, byteOffset + bytes.byteLength);
      let written = 0;
      try {
        while (written < bytes.byteLength) {
          const { bytesWritten } = await handle.write(
            bytes,
            written,
            Math.min(bytes.byteLength - written, maxWriteBytes),
            byteOffset + written,
          );
          if (bytesWritten === 0) throw new Error('nothing was written');
          written += bytesWritten;
        }
      } catch (error) {
        await discard();
        throw fileError(path, error, byteOffset + written);
      }
    },
    async close() {
      if (state === 'closed') return;
      if (state === 'aborted') throw new ReleasedError(path);
      try {
        await handle.truncate(sizeBytes); // a write of zero bytes after a gap
        await handle.sync();
        await handle.close();
        await rename(temporary, path);
      } catch (error) {
        await discard();
        throw fileError(path, error);
      }
      state = 'closed';
    },
    abort: discard,
  };
}

/** Bytes per system call; one call above 2 GiB fails. */
const maxWriteBytes = 64 * 1024 * 1024;
