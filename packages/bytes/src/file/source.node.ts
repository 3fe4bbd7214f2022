/** A local file as a source, by positioned reads. */
import { open, stat, type FileHandle } from 'node:fs/promises';
import { IoError, ReleasedError } from '@winnow/tensor';
import type { ByteSource, ReadOptions } from '../byte-source.js';
import { fileError } from './error.node.js';
import { checkRange } from '../range.js';

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
  return new FileSource(path, handle, sizeBytes);
}

class FileSource implements ByteSource {
  readonly name: string;
  readonly sizeBytes: number;
  readonly #handle: FileHandle;
  #isOpen = true;

  constructor(path: string, handle: FileHandle, sizeBytes: number) {
    this.name = path;
    this.sizeBytes = sizeBytes;
    this.#handle = handle;
  }

  async read(byteOffset: number, target: Uint8Array, options?: ReadOptions): Promise<void> {
    if (!this.#isOpen) throw new ReleasedError(this.name);
    checkRange(this.name, this.sizeBytes, byteOffset, target.byteLength);
    for (let filled = 0; filled < target.byteLength;) {
      options?.signal?.throwIfAborted();
      const numRead = await this.#readSome(byteOffset + filled, target.subarray(filled));
      if (numRead === 0) {
        const end = byteOffset + filled;
        const message = `unexpected end, expected ${this.sizeBytes} bytes, got ${end}; it was truncated while open`;
        throw new IoError({ source: this.name, byteOffset: end, message });
      }
      filled += numRead;
    }
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#handle.close();
  }

  async #readSome(byteOffset: number, target: Uint8Array): Promise<number> {
    try {
      const length = Math.min(maxReadBytes, target.byteLength);
      return (await this.#handle.read(target, 0, length, byteOffset)).bytesRead;
    } catch (error) {
      throw this.#isOpen ? fileError(this.name, error, byteOffset) : new ReleasedError(this.name);
    }
  }
}
