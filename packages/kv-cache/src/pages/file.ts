/** The file of the cold tier, read and written at byte offsets. Node, OPFS or memory can implement it. */
import { checkOptions, IoError, ReleasedError } from '@winnow/tensor';

export interface PageFile {
  /** Name in error messages. */
  readonly name: string;
  /** End of the last byte written. */
  readonly sizeBytes: number;
  /** Fills `target`. @throws {IoError} when that fails or the file ends earlier */
  read(byteOffset: number, target: Uint8Array): Promise<void>;
  /** Fills several targets with consecutive bytes in one call. Where it is missing, `read` is called for each. */
  readParts?(byteOffset: number, targets: readonly Uint8Array[]): Promise<void>;
  /** Writes all of `bytes`, growing the file as needed. @throws {IoError} when that fails; part of them may be there then */
  write(byteOffset: number, bytes: Uint8Array): Promise<void>;
  /** Waits until all writes have reached the device. @throws {IoError} */
  sync(): Promise<void>;
  /** Later calls throw `ReleasedError`. Closing twice is harmless. */
  close(): Promise<void>;
}

/** A page file in memory, of at most `maxBytes`: for tests, and where there is no file system. */
export function memoryPageFile(options: { readonly name?: string; readonly maxBytes?: number } = {}): PageFile {
  checkOptions(options, { name: true, maxBytes: true });
  return new MemoryPageFile(options.name ?? 'memory', options.maxBytes ?? Infinity);
}

class MemoryPageFile implements PageFile {
  readonly name: string;
  readonly #maxBytes: number;
  #bytes = new Uint8Array(0);
  #sizeBytes = 0;
  #isOpen = true;

  constructor(name: string, maxBytes: number) {
    this.name = name;
    this.#maxBytes = maxBytes;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  async read(byteOffset: number, target: Uint8Array): Promise<void> {
    this.#checkOpen();
    const end = byteOffset + target.byteLength;
    if (end > this.#sizeBytes) {
      const message = `unexpected end, the file has ${this.#sizeBytes} bytes`;
      throw new IoError({ source: this.name, byteOffset, message });
    }
    target.set(this.#bytes.subarray(byteOffset, end));
  }

  async write(byteOffset: number, added: Uint8Array): Promise<void> {
    this.#checkOpen();
    const end = byteOffset + added.byteLength;
    if (end > this.#maxBytes) {
      throw new IoError({ source: this.name, byteOffset, message: `full: at most ${this.#maxBytes} bytes` });
    }
    if (end > this.#bytes.byteLength) {
      const grown = new Uint8Array(Math.max(end, 2 * this.#bytes.byteLength));
      grown.set(this.#bytes);
      this.#bytes = grown;
    }
    this.#bytes.set(added, byteOffset);
    this.#sizeBytes = Math.max(this.#sizeBytes, end);
  }

  async sync(): Promise<void> {
    this.#checkOpen();
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    this.#bytes = new Uint8Array(0);
  }

  #checkOpen(): void {
    if (!this.#isOpen) throw new ReleasedError(this.name);
  }
}
