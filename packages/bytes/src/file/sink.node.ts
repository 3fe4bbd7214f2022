/** A file as a sink: written to a temporary file, which is renamed to its destination on `close`. */
import { link, open, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { checkOptions, IoError, ReleasedError, type OptionNames } from '@winnow/tensor';
import type { ByteSink } from '../byte-sink.js';
import { fileError } from './error.node.js';
import { adoptPart, keepPart, partPath } from './part.node.js';
import { checkCount } from '../range.js';

export interface FileSinkOptions {
  /** Permissions of the file. Default `0o666` without the bits of the umask. */
  readonly mode?: number;
  /** Whether `close` fails when there is a file at `path`. Default false: it is replaced. */
  readonly isNew?: boolean;
  /** Whether to continue the part that a killed or aborted sink with this option left, and to leave one on `abort`. Default false. */
  readonly resume?: boolean;
}

const fileSinkOptionNames: OptionNames<FileSinkOptions> = { mode: true, isNew: true, resume: true };

/** A sink that can continue an interrupted one. */
export interface ResumableSink extends ByteSink {
  /** Number of bytes that an interrupted sink has left. They are unchecked, and `close` keeps them up to `sizeBytes`. */
  readonly leftBytes: number;
  /** Reads some of these bytes. @throws {IoError} */
  readLeft(byteOffset: number, numBytes: number): Promise<Uint8Array>;
}

/**
 * A sink for `path`. The bytes go to a new file `<path>.<...>.part` in the same folder; `close` flushes it to the disk
 * and renames it to `path`, replacing an existing file, and `abort` or any failure removes it. So `path` is always
 * absent, the old file or the complete new one. Parts that killed processes left are removed by the next sink of `path`.
 * @throws {IoError} when the folder is missing or not writable, or `path` is a folder, a device or a pipe: the rename
 * would replace it
 */
export async function fileSink(path: string, options: FileSinkOptions = {}): Promise<ResumableSink> {
  checkOptions(options, fileSinkOptionNames);
  const left = options.resume === true ? await adoptPart(path) : undefined;
  const temporary = left ?? (await partPath(path));
  let handle: FileHandle;
  try {
    const existing = await stat(path).catch(() => undefined);
    if (existing?.isDirectory() === true) throw new IoError({ source: path, message: 'is a folder, expected a file' });
    if (existing?.isFile() === false) throw new IoError({ source: path, message: 'is not a regular file' });
    handle = await open(temporary, left === undefined ? 'wx' : 'r+', options.mode);
  } catch (error) {
    throw fileError(path, error);
  }
  const leftBytes = left === undefined ? 0 : (await handle.stat()).size;
  return new FileSink(path, temporary, handle, { ...options, leftBytes });
}

/** Maximum number of bytes per system call; one call above 2 GiB fails. */
const maxWriteBytes = 64 * 1024 * 1024;

interface FileSinkState extends FileSinkOptions {
  readonly leftBytes: number;
}

class FileSink implements ResumableSink {
  readonly name: string;
  readonly leftBytes: number;
  readonly #temporary: string;
  readonly #handle: FileHandle;
  readonly #options: FileSinkOptions;
  #sizeBytes = 0;
  #state: 'open' | 'closed' | 'aborted' = 'open';

  constructor(path: string, temporary: string, handle: FileHandle, { leftBytes, ...options }: FileSinkState) {
    this.name = path;
    this.leftBytes = leftBytes;
    this.#temporary = temporary;
    this.#handle = handle;
    this.#options = options;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  async write(bytes: Uint8Array, byteOffset: number = this.#sizeBytes): Promise<void> {
    if (this.#state !== 'open') throw new ReleasedError(this.name);
    checkCount('byteOffset', byteOffset);
    this.#sizeBytes = Math.max(this.#sizeBytes, byteOffset + bytes.byteLength);
    let written = 0;
    try {
      while (written < bytes.byteLength) {
        const numBytes = Math.min(bytes.byteLength - written, maxWriteBytes);
        const { bytesWritten } = await this.#handle.write(bytes, written, numBytes, byteOffset + written);
        if (bytesWritten === 0) throw new Error('no bytes were written');
        written += bytesWritten;
      }
    } catch (error) {
      await this.abort();
      throw fileError(this.name, error, byteOffset + written);
    }
  }

  async readLeft(byteOffset: number, numBytes: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(numBytes);
    const { bytesRead } = await this.#handle.read(bytes, 0, numBytes, byteOffset).catch((error: unknown) => {
      throw fileError(this.name, error, byteOffset);
    });
    return bytes.subarray(0, bytesRead);
  }

  async close(): Promise<void> {
    if (this.#state === 'closed') return;
    if (this.#state === 'aborted') throw new ReleasedError(this.name);
    try {
      await this.#handle.truncate(this.#sizeBytes); // a write of zero bytes after a gap
      await this.#handle.sync();
      await this.#handle.close();
      await this.#publish();
    } catch (error) {
      await this.abort();
      throw fileError(this.name, error);
    }
    this.#state = 'closed';
  }

  async abort(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'aborted';
    await this.#handle.close().catch(() => undefined);
    if (this.#options.resume === true) await keepPart(this.#temporary, this.name).catch(() => undefined);
    else await rm(this.#temporary, { force: true }).catch(() => undefined);
  }

  async #publish(): Promise<void> {
    if (this.#options.isNew !== true) return rename(this.#temporary, this.name);
    await link(this.#temporary, this.name); // unlike a rename, it never replaces
    await rm(this.#temporary, { force: true });
  }
}
