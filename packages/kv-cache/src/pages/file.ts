/** The file of the cold tier, read and written at byte offsets. Node, OPFS or memory can implement it. */
import { IoError, ReleasedError } from '@winnow/tensor';

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
  const { name = 'memory', maxBytes = Infinity } = options;
  let bytes = new Uint8Array(0);
  let sizeBytes = 0;
  let isOpen = true;
  const checkOpen = (): void => {
    if (!isOpen) throw new ReleasedError(name);
  };
  return {
    name,
    get sizeBytes() {
      return sizeBytes;
    },
    async read(byteOffset, target) {
      checkOpen();
      if (byteOffset + target.byteLength > sizeBytes) {
        throw new IoError({ source: name, byteOffset, message: `unexpected end, the file has ${sizeBytes} bytes` });
      }
      target.set(bytes.subarray(byteOffset, byteOffset + target.byteLength));
    },
    async write(byteOffset, added) {
      checkOpen();
      const end = byteOffset + added.byteLength;
      if (end > maxBytes) throw new IoError({ source: name, byteOffset, message: `full: at most ${maxBytes} bytes` });
      if (end > bytes.byteLength) {
        const grown = new Uint8Array(Math.max(end, 2 * bytes.byteLength));
        grown.set(bytes);
        bytes = grown;
      }
      bytes.set(added, byteOffset);
      sizeBytes = Math.max(sizeBytes, end);
    },
    async sync() {
      checkOpen();
    },
    async close() {
      isOpen = false;
      bytes = new Uint8Array(0);
    },
  };
}
