/** A blob as a source of bytes at any position, such as a model that is read by ranges. */
import { checkRange, type ByteSource, type ReadOptions } from '@winnow/bytes';
import { IoError, ReleasedError } from '@winnow/tensor';
import { missingBlob } from './blob-error.js';
import type { BlobCallOptions, BlobInfo, BlobStore } from './blob-store.js';

/**
 * Opens the content of a key. Each read reads the store, and requires the version that was opened: if the store has versions,
 * content that is replaced meanwhile causes an error.
 * @throws {ArgumentError} for an invalid key
 * @throws {BlobError} when there is none, or the store fails
 */
export async function blobByteSource(
  store: BlobStore,
  key: string,
  options: BlobCallOptions = {},
): Promise<ByteSource> {
  const info = await store.stat(key, options);
  const name = `${store.name.replace(/\/$/, '')}/${key}`;
  if (info === undefined) throw missingBlob(name);
  return new StoredSource(store, info, name);
}

class StoredSource implements ByteSource {
  readonly name: string;
  readonly sizeBytes: number;
  readonly #store: BlobStore;
  readonly #key: string;
  readonly #version: { readonly version?: string };
  readonly #closing = new AbortController();

  constructor(store: BlobStore, { key, sizeBytes, version }: BlobInfo, name: string) {
    this.name = name;
    this.sizeBytes = sizeBytes;
    this.#store = store;
    this.#key = key;
    this.#version = version === undefined ? {} : { version };
  }

  async read(byteOffset: number, target: Uint8Array, options: ReadOptions = {}): Promise<void> {
    const closing = this.#closing.signal;
    closing.throwIfAborted();
    checkRange(this.name, this.sizeBytes, byteOffset, target.byteLength);
    const signal = options.signal === undefined ? closing : AbortSignal.any([closing, options.signal]);
    signal.throwIfAborted();
    if (target.byteLength === 0) return;
    const range = { byteOffset, byteLength: target.byteLength, ...this.#version, signal };
    let filled = 0;
    for await (const bytes of this.#store.read(this.#key, range)) {
      target.set(bytes, filled);
      filled += bytes.byteLength;
    }
    if (filled === target.byteLength) return;
    const message = `unexpected end, expected ${target.byteLength} bytes, got ${filled}`;
    throw new IoError({ source: this.name, byteOffset: byteOffset + filled, message });
  }

  async close(): Promise<void> {
    if (!this.#closing.signal.aborted) this.#closing.abort(new ReleasedError(this.name));
  }
}
