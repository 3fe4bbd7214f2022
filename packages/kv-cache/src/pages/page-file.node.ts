/** A page file in the file system of Node. */
import { open } from 'node:fs/promises';
import { IoError, ReleasedError, WinnowError } from '@winnow/tensor';
import type { PageFile } from './page-file.js';

/** What is used of a file handle of Node; tests put a faulty one in its place. */
export interface RawFile {
  read(target: Uint8Array, offset: number, length: number, position: number): Promise<{ readonly bytesRead: number }>;
  readv?(targets: readonly Uint8Array[], position: number): Promise<{ readonly bytesRead: number }>;
  write(
    bytes: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesWritten: number }>;
  datasync(): Promise<void>;
  stat(): Promise<{ readonly size: number }>;
  close(): Promise<void>;
}

export interface PageFileOptions {
  /** Keep what an existing file holds. Default false: it is emptied. */
  readonly keep?: boolean;
  /** Opens the file; flags as in `fs.open`. Default: that of Node. */
  readonly open?: (path: string, flags: string) => Promise<RawFile>;
}

/**
 * Opens or creates a file for pages.
 * @throws {IoError} with the path, when that fails
 */
export async function openPageFile(path: string, options: PageFileOptions = {}): Promise<PageFile> {
  const openRaw = options.open ?? ((name: string, flags: string) => open(name, flags));
  let file: RawFile;
  let sizeBytes: number;
  try {
    if (options.keep === true) {
      const created = await openRaw(path, 'a'); // creates it where it is missing, and changes nothing else
      await created.close();
    }
    file = await openRaw(path, options.keep === true ? 'r+' : 'w+');
    sizeBytes = (await file.stat()).size;
  } catch (error) {
    throw pageFileError(path, error, undefined);
  }
  let isOpen = true;
  const checkOpen = (): void => {
    if (!isOpen) throw new ReleasedError(path);
  };
  async function read(byteOffset: number, target: Uint8Array): Promise<void> {
    checkOpen();
    let filled = 0;
    while (filled < target.byteLength) {
      let bytesRead: number;
      try {
        ({ bytesRead } = await file.read(target, filled, target.byteLength - filled, byteOffset + filled));
      } catch (error) {
        throw pageFileError(path, error, byteOffset + filled);
      }
      if (bytesRead === 0) {
        const message = `ended early, expected ${target.byteLength - filled} more bytes`;
        throw new IoError({ source: path, byteOffset: byteOffset + filled, message });
      }
      filled += bytesRead;
    }
  }
  return {
    name: path,
    get sizeBytes() {
      return sizeBytes;
    },
    read,
    async readParts(byteOffset, targets) {
      checkOpen();
      let filled = 0;
      try {
        filled = (await file.readv?.(targets, byteOffset))?.bytesRead ?? 0;
      } catch (error) {
        throw pageFileError(path, error, byteOffset);
      }
      let begin = 0; // what a short read has left out comes part by part
      for (const target of targets) {
        const rest = target.subarray(Math.max(0, filled - begin));
        begin += target.byteLength;
        if (rest.byteLength > 0) await read(byteOffset + begin - rest.byteLength, rest);
      }
    },
    async write(byteOffset, bytes) {
      checkOpen();
      let written = 0;
      while (written < bytes.byteLength) {
        try {
          const { bytesWritten } = await file.write(bytes, written, bytes.byteLength - written, byteOffset + written);
          if (bytesWritten === 0) throw new Error('nothing was written');
          written += bytesWritten;
        } catch (error) {
          throw pageFileError(path, error, byteOffset + written);
        }
        sizeBytes = Math.max(sizeBytes, byteOffset + written);
      }
    },
    async sync() {
      checkOpen();
      try {
        await file.datasync();
      } catch (error) {
        throw pageFileError(path, error, undefined);
      }
    },
    async close() {
      if (!isOpen) return;
      isOpen = false;
      await file.close();
    },
  };
}

function pageFileError(path: string, error: unknown, byteOffset: number | undefined): WinnowError {
  if (WinnowError.isInstance(error)) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new IoError({ source: path, message, ...(byteOffset === undefined ? {} : { byteOffset }) }, { cause: error });
}
