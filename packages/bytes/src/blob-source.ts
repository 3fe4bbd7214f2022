/** A `Blob` (in browsers: a selected `File`) as a source. */
import { IoError, ReleasedError } from '@winnow/tensor';
import type { ByteSource, ReadOptions } from './byte-source.js';
import { checkRange, messageOf } from './range.js';

/** A source over `blob`; each read copies one slice of it, never the whole. The name defaults to the `File`'s. */
export function blobSource(blob: Blob, name: string = nameOf(blob)): ByteSource {
  return new BlobSource(blob, name);
}

class BlobSource implements ByteSource {
  readonly name: string;
  readonly #blob: Blob;
  #isOpen = true;

  constructor(blob: Blob, name: string) {
    this.name = name;
    this.#blob = blob;
  }

  get sizeBytes(): number {
    return this.#blob.size;
  }

  async read(byteOffset: number, target: Uint8Array, options?: ReadOptions): Promise<void> {
    const { name } = this;
    options?.signal?.throwIfAborted();
    if (!this.#isOpen) throw new ReleasedError(name);
    checkRange(name, this.sizeBytes, byteOffset, target.byteLength);
    let bytes: ArrayBuffer;
    try {
      bytes = await this.#blob.slice(byteOffset, byteOffset + target.byteLength).arrayBuffer();
    } catch (error) {
      throw new IoError({ source: name, byteOffset, message: `cannot be read: ${messageOf(error)}` }, { cause: error });
    }
    options?.signal?.throwIfAborted();
    if (bytes.byteLength !== target.byteLength) {
      const message = `unexpected end, expected ${target.byteLength} bytes, got ${bytes.byteLength}`;
      throw new IoError({ source: name, byteOffset, message });
    }
    target.set(new Uint8Array(bytes));
  }

  async close(): Promise<void> {
    this.#isOpen = false;
  }
}

function nameOf(blob: Blob): string {
  return 'name' in blob ? String(blob.name) : 'blob';
}
