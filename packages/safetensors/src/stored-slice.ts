/** A tensor as a range of a byte source. */
import type { ByteSource, StoredTensor } from '@winnow/bytes';
import { ArgumentError, DTypeError, IoError, type DType, type Shape } from '@winnow/tensor';
import { shown } from './json-cursor.js';

/** A tensor whose dtype exists in the format but not in Winnow. It is listed but cannot be read. */
export interface UnsupportedTensor {
  readonly name: string;
  /** As written in the file, for example `F8_E4M3`. */
  readonly fileDType: string;
  readonly shape: Shape;
  readonly sizeBytes: number;
  /** Of U8, to be read by `withMxfp4`. */
  readonly bytes?: StoredTensor;
}

export class StoredSlice implements StoredTensor {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: Shape;
  readonly sizeBytes: number;
  readonly #source: ByteSource;
  readonly #begin: number;

  constructor(source: ByteSource, fields: { name: string; dtype: DType; shape: Shape; begin: number; end: number }) {
    this.name = fields.name;
    this.dtype = fields.dtype;
    this.shape = fields.shape;
    this.sizeBytes = fields.end - fields.begin;
    this.#source = source;
    this.#begin = fields.begin;
  }

  async read(target: Uint8Array, options: { byteOffset?: number; signal?: AbortSignal } = {}): Promise<void> {
    const byteOffset = options.byteOffset ?? 0;
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0 || byteOffset + target.byteLength > this.sizeBytes) {
      throw new IoError({
        source: `${this.#source.name}: ${shown(this.name)}`,
        message:
          `range outside of the tensor, expected [start, end) within [0, ${this.sizeBytes}), ` +
          `got [${byteOffset}, ${byteOffset + target.byteLength})`,
      });
    }
    await this.#source.read(
      this.#begin + byteOffset,
      target,
      options.signal === undefined ? {} : { signal: options.signal },
    );
  }
}

/**
 * Looks a tensor up. @throws {DTypeError} when its dtype is unsupported @throws {ArgumentError} when there is no such
 * tensor
 */
export function findTensor(
  store: {
    readonly name: string;
    readonly tensors: ReadonlyMap<string, StoredTensor>;
    readonly unsupported: ReadonlyMap<string, UnsupportedTensor>;
  },
  name: string,
): StoredTensor {
  const tensor = store.tensors.get(name);
  if (tensor !== undefined) return tensor;
  const unsupported = store.unsupported.get(name);
  if (unsupported !== undefined) {
    throw new DTypeError({
      op: `${store.name}: ${shown(name)}`,
      expected: 'f32 | f16 | bf16 | f64 | i8 | i16 | i32 | i64',
      actual: unsupported.fileDType,
    });
  }
  throw new ArgumentError({
    argument: 'name',
    expected: `a tensor of ${store.name}`,
    actual: `"${shown(name)}"`,
    hint: `it has ${store.tensors.size + store.unsupported.size} tensors`,
  });
}
