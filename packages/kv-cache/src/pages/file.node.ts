/** A page file in the file system of Node. */
import { open } from 'node:fs/promises';
import { checkOptions, IoError, type OptionNames, ReleasedError, WinnowError } from '@winnow/tensor';
import type { PageFile } from './file.js';

/** The methods of Node's file handle that are used; tests substitute a faulty one. */
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
  /** Keep the contents of an existing file. Default false: truncate it. */
  readonly keep?: boolean;
  /** Opens the file; flags as in `fs.open`. Default: Node's `open`. */
  readonly open?: (path: string, flags: string) => Promise<RawFile>;
}

const pageFileNames: OptionNames<PageFileOptions> = { keep: true, open: true };

/**
 * Opens or creates a page file.
 * @throws {IoError} with the path on failure
 */
export async function openPageFile(path: string, options: PageFileOptions = {}): Promise<PageFile> {
  checkOptions(options, pageFileNames);
  const openRaw = options.open ?? ((name: string, flags: string) => open(name, flags));
  let file: RawFile;
  let sizeBytes: number;
  try {
    if (options.keep === true) {
      const created = await openRaw(path, 'a'); // creates it if it is missing, and changes nothing else
      await created.close();
    }
    file = await openRaw(path, options.keep === true ? 'r+' : 'w+');
    sizeBytes = (await file.stat()).size;
  } catch (error) {
    throw pageFileError(path, error, undefined);
  }
  return new NodePageFile(path, file, sizeBytes);
}

class NodePageFile implements PageFile {
  readonly name: string;
  readonly #file: RawFile;
  #sizeBytes: number;
  #isOpen = true;

  constructor(path: string, file: RawFile, sizeBytes: number) {
    this.name = path;
    this.#file = file;
    this.#sizeBytes = sizeBytes;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  async read(byteOffset: number, target: Uint8Array): Promise<void> {
    this.#checkOpen();
    let filled = 0;
    while (filled < target.byteLength) {
      const numMissing = target.byteLength - filled;
      const begin = byteOffset + filled;
      const { bytesRead } = await this.#attempt(begin, () => this.#file.read(target, filled, numMissing, begin));
      if (bytesRead === 0) {
        const message = `unexpected end, expected ${numMissing} more bytes`;
        throw new IoError({ source: this.name, byteOffset: begin, message });
      }
      filled += bytesRead;
    }
  }

  async readParts(byteOffset: number, targets: readonly Uint8Array[]): Promise<void> {
    this.#checkOpen();
    const result = await this.#attempt(byteOffset, async () => this.#file.readv?.(targets, byteOffset));
    const filled = result?.bytesRead ?? 0;
    let begin = 0; // short reads are continued
    for (const target of targets) {
      const rest = target.subarray(Math.max(0, filled - begin));
      begin += target.byteLength;
      if (rest.byteLength > 0) await this.read(byteOffset + begin - rest.byteLength, rest);
    }
  }

  async write(byteOffset: number, bytes: Uint8Array): Promise<void> {
    this.#checkOpen();
    let written = 0;
    while (written < bytes.byteLength) {
      const begin = byteOffset + written;
      written += await this.#attempt(begin, async () => {
        const { bytesWritten } = await this.#file.write(bytes, written, bytes.byteLength - written, begin);
        if (bytesWritten === 0) throw new Error('the disk accepted no bytes');
        return bytesWritten;
      });
      this.#sizeBytes = Math.max(this.#sizeBytes, byteOffset + written);
    }
  }

  async sync(): Promise<void> {
    this.#checkOpen();
    await this.#attempt(undefined, () => this.#file.datasync());
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#file.close();
  }

  #checkOpen(): void {
    if (!this.#isOpen) throw new ReleasedError(this.name);
  }

  /** @throws {IoError} with the offset when the call fails */
  async #attempt<T>(byteOffset: number | undefined, call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      throw pageFileError(this.name, error, byteOffset);
    }
  }
}

function pageFileError(path: string, error: unknown, byteOffset: number | undefined): WinnowError {
  if (WinnowError.isInstance(error)) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new IoError({ source: path, message, ...(byteOffset === undefined ? {} : { byteOffset }) }, { cause: error });
}
