/**
 * A plain contiguous KV cache of one layer and sequence for the typed-array door: f32, f16 or a block format, optionally
 * a ring that keeps the first and the last tokens only. Engines bring their own paged cache.
 */
import { ArgumentError, CapacityError, decoder, dtypeInfo, encoder, ShapeError, tensorBytes } from '@winnow/tensor';
import type { DType, Tensor3 } from '@winnow/tensor';
import type { KvRows, Rows } from './rows.js';

/** Sizes and storage of a `KvStore`. */
export interface KvStoreOptions {
  /** Positions that fit; of a ring: `sinks + window`. */
  readonly capacity: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Default: `headDim`. */
  readonly valueDim?: number;
  /** Default: f32. */
  readonly keyDType?: DType;
  /** Default: f32. */
  readonly valueDType?: DType;
  /** Keep only this many first positions and, in a ring, the last `capacity - ringSinks`. */
  readonly ringSinks?: number;
}

/** Appends, truncates and reads rows. Position p of a ring with s sinks lies in slot `s + (p - s) % (capacity - s)`. */
export class KvStore implements KvRows {
  readonly keys: Rows;
  readonly values: Rows;
  readonly capacity: number;
  /** Bytes of keys and values. */
  readonly sizeBytes: number;
  readonly ringSinks: number | undefined;
  #length = 0;
  readonly #keys: StoredRows;
  readonly #values: StoredRows;

  /** @throws {ArgumentError} for sizes that are impossible, {DTypeError} for a dtype that can't be written */
  constructor(options: KvStoreOptions) {
    const { capacity, numKvHeads, headDim, valueDim = headDim, keyDType = 'f32', valueDType = 'f32' } = options;
    for (const [argument, value] of Object.entries({ capacity, numKvHeads, headDim, valueDim })) {
      if (Number.isSafeInteger(value) && value > 0) continue;
      throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
    }
    const { ringSinks } = options;
    if (ringSinks !== undefined && !(ringSinks >= 0 && ringSinks < capacity)) {
      throw new ArgumentError({ argument: 'ringSinks', expected: `0 to ${capacity - 1}`, actual: String(ringSinks) });
    }
    const slotOf =
      ringSinks === undefined
        ? (position: number): number => position
        : (position: number): number =>
            position < ringSinks ? position : ringSinks + ((position - ringSinks) % (capacity - ringSinks));
    this.capacity = capacity;
    this.ringSinks = ringSinks;
    this.#keys = new StoredRows(capacity, numKvHeads, headDim, keyDType, slotOf);
    this.#values = new StoredRows(capacity, numKvHeads, valueDim, valueDType, slotOf);
    this.keys = this.#keys;
    this.values = this.#values;
    this.sizeBytes =
      tensorBytes(keyDType, [capacity, numKvHeads, headDim]) +
      tensorBytes(valueDType, [capacity, numKvHeads, valueDim]);
  }

  /** Positions appended so far; a ring holds `min(length, capacity)` of them. */
  get length(): number {
    return this.#length;
  }

  /** Whether so many more positions fit. */
  canAppend(numTokens: number): boolean {
    return this.ringSinks !== undefined || this.#length + numTokens <= this.capacity;
  }

  /**
   * Appends rows `[begin, end)` of keys `[tokens, numKvHeads, headDim]` and values, converting them on the way.
   * @throws {ShapeError} for tensors of other shapes, {CapacityError} when they don't fit
   */
  append(k: Tensor3, v: Tensor3, begin = 0, end: number = k.seqLen): void {
    checkRows('KvStore.append', 'keys', k, this.keys);
    checkRows('KvStore.append', 'values', v, this.values);
    if (v.seqLen !== k.seqLen) {
      const fields = { op: 'KvStore.append', rule: 'tokens of values' };
      throw new ShapeError({ ...fields, expected: String(k.seqLen), actual: String(v.seqLen) });
    }
    if (!this.canAppend(end - begin)) {
      const needed = this.#length + end - begin;
      throw new CapacityError({ resource: 'KvStore', needed, available: this.capacity, unit: 'tokens' });
    }
    for (let token = begin; token < end; token++) {
      this.#keys.write(this.#length, k.data, token);
      this.#values.write(this.#length, v.data, token);
      this.#length += 1;
    }
  }

  /** Forgets positions from `length` on. @throws {ArgumentError} for a length that the store can't go back to */
  truncate(length: number): void {
    const isLost = this.ringSinks !== undefined && this.#length > this.capacity && length !== this.#length;
    if (!Number.isSafeInteger(length) || length < 0 || length > this.#length || isLost) {
      const expected = isLost ? `${this.#length}, the ring has forgotten older tokens` : `0 to ${this.#length}`;
      throw new ArgumentError({ argument: 'KvStore.truncate', expected, actual: String(length) });
    }
    this.#length = length;
  }
}

function checkRows(op: string, name: string, tensor: Tensor3, { numHeads, dim }: Rows): void {
  if (tensor.numHeads === numHeads && tensor.headDim === dim) return;
  const actual = `[${tensor.shape.join(', ')}]`;
  throw new ShapeError({ op, rule: name, expected: `[tokens, ${numHeads}, ${dim}]`, actual });
}

class StoredRows implements Rows {
  readonly numHeads: number;
  readonly dim: number;
  readonly buffer: Float32Array;
  readonly locate: (position: number, head: number) => number;
  readonly write: (position: number, source: Float32Array, token: number) => void;

  constructor(capacity: number, numHeads: number, dim: number, dtype: DType, slotOf: (position: number) => number) {
    const { blockSize, blockBytes } = dtypeInfo(dtype);
    if (dim % blockSize !== 0) {
      const expected = `a multiple of ${blockSize} for ${dtype}`;
      throw new ArgumentError({ argument: 'head size', expected, actual: String(dim) });
    }
    this.numHeads = numHeads;
    this.dim = dim;
    const width = numHeads * dim;
    if (dtype === 'f32') {
      const data = new Float32Array(capacity * width);
      this.buffer = data;
      this.locate = (position, head) => slotOf(position) * width + head * dim;
      this.write = (position, source, token) => {
        data.set(source.subarray(token * width, (token + 1) * width), slotOf(position) * width);
      };
      return;
    }
    const rowBytes = (dim / blockSize) * blockBytes;
    const bytes = new Uint8Array(capacity * numHeads * rowBytes);
    const row = new Float32Array(dim);
    const decode = decoder(dtype);
    const encode = encoder(dtype);
    this.buffer = row;
    this.locate = (position, head) => {
      decode(bytes, (slotOf(position) * numHeads + head) * rowBytes, row, 0, dim);
      return 0;
    };
    this.write = (position, source, token) => {
      encode(source, token * width, bytes, slotOf(position) * numHeads * rowBytes, width);
    };
  }
}
