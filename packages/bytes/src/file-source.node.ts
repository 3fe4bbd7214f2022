/** A local file as a source, by positioned reads. */
import { open, stat, type FileHandle } from 'node:fs/promises';
import { IoError, ReleasedError } from '@winnow/tensor';
import type { ByteSource } from './byte-source.js';
import { fileError } from './file-error.node.js';
import { checkRange } from './range.js';

/** Maximum number of bytes per system call: one call above 2 GiB fails, and smaller reads can be aborted in between. */
const maxReadBytes = 64 * 1024 * 1024;

/**
 * Opens a regular file. It must not change while it is open.
 * @throws {IoError} with the path, when the file is missing or not readable, or is a folder or a device
 */
export async function fileSource(path: string): Promise<ByteSource> {
  let handle: FileHandle;
  let sizeBytes: number;
  try {
    const found = await stat(path); // checked before `open`, which would block on a pipe
    if (found.isDirectory()) throw new IoError({ source: path, message: 'is a folder, expected a file' });
    if (!found.isFile()) throw new IoError({ source: path, message: 'is not a regular file' });
    handle = await open(path, 'r');
    sizeBytes = (await handle.stat()).size;
  } catch (error) {
    throw fileError(path, error);
  }
  let isOpen = true;
  return {
    name: path,
    sizeBytes,
    async read(byteOffset, target, options) {
      if (!isOpen) throw new ReleasedError(path);
      checkRange(path, sizeBytes, byteOffset, target.byteLength);
      let filled = 0;
      while (filled < target.byteLength) {
        options?.signal?.throwIfAborted();
        const length = Math.min(maxReadBytes, target.byteLength - filled);
        let bytesRead: number;
        try {
          ({ bytesRead } = await handle.read(target, filled, length, byteOffset + filled));
        } catch (error) {
          throw isOpen ? fileError(path, error, byteOffset + filled) : new ReleasedError(path);
        }
        if (bytesRead === 0) {
          throw new IoError({
            source: path,
            byteOffset: byteOffset + filled,
            message: `unexpected end, expected ${sizeBytes} bytes, got ${byteOffset + filled}; it was truncated while open`,
          });
        }
        filled += bytesRead;
      }
    },
    async close() {
      if (!isOpen) return;
      isOpen = false;
      await handle.close();
    },
  };
}
