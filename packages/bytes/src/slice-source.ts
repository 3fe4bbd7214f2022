/** A slice of another source, for formats nested in others. */
import { IoError, ReleasedError } from '@winnow/tensor';
import type { ByteSource, ReadOptions } from './byte-source.js';
import { checkCount, checkRange } from './range.js';

/**
 * The bytes `[byteOffset, byteOffset + sizeBytes)` of `source`, counted from 0. The slice does not own `source`:
 * closing it does not close `source`.
 * @throws {IoError} when the range is not inside `source`
 */
export function sliceSource(
  source: ByteSource,
  byteOffset: number,
  sizeBytes: number = source.sizeBytes - byteOffset,
): ByteSource {
  if (sizeBytes < 0) {
    throw new IoError({
      source: source.name,
      byteOffset,
      message: `slice starts after the end (${source.sizeBytes} bytes)`,
    });
  }
  checkCount('sizeBytes', sizeBytes);
  checkRange(source.name, source.sizeBytes, byteOffset, sizeBytes);
  return new SliceSource(source, byteOffset, sizeBytes);
}

class SliceSource implements ByteSource {
  readonly name: string;
  readonly sizeBytes: number;
  readonly #source: ByteSource;
  readonly #begin: number;
  #isOpen = true;

  constructor(source: ByteSource, begin: number, sizeBytes: number) {
    this.name = `${source.name}[${begin}..${begin + sizeBytes}]`;
    this.sizeBytes = sizeBytes;
    this.#source = source;
    this.#begin = begin;
  }

  async read(byteOffset: number, target: Uint8Array, options?: ReadOptions): Promise<void> {
    if (!this.#isOpen) throw new ReleasedError(this.name);
    checkRange(this.name, this.sizeBytes, byteOffset, target.byteLength);
    await this.#source.read(this.#begin + byteOffset, target, options);
  }

  async close(): Promise<void> {
    this.#isOpen = false;
  }
}
