/**
 * The memory of one layer's cache on a backend, in the layout of `KvView` of @winnow/ops. Ops store keys and values, so
 * the same backend rotates, quantizes and reads them.
 */
import {
  BoundProgram,
  copyBytes,
  createReferenceBackend,
  externalKv,
  type Backend,
  type BufferHandle,
} from '@winnow/ops';
import { ArgumentError, checkOptions, decode, type OptionNames, ShapeError, type DType } from '@winnow/tensor';
import type { BlockCopy } from '../blocks/slot-writer.js';
import { resolveKvShape, type KvBlocks, type KvShape, type KvShapeOptions } from './shape.js';

export interface KvStorageOptions extends KvShapeOptions {
  /** The backend of the cache. Default: the reference backend, which is slow. */
  readonly backend?: Backend;
}

export const kvStorageNames: OptionNames<KvStorageOptions> = {
  ...{ numKvHeads: true, headDim: true, valueDim: true, dtype: { keys: true, values: true }, rotateKeys: true },
  backend: true,
};

/** Tokens stored per run; a single token has its own program. */
const chunkTokens = 64;

/** Keys, values and slot positions. One call at a time. */
export class KvStorage {
  readonly shape: KvShape;
  readonly backend: Backend;
  /** `keys`, `values` and `slotPositions`, as the inputs of attention ops name them. */
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly #programs = new Map<number, Promise<BoundProgram>>();

  private constructor(shape: KvShape, backend: Backend) {
    this.shape = shape;
    this.backend = backend;
    const { numBlocks, blockSize, keyBlockBytes, valueBlockBytes } = shape;
    const sizes = { keys: keyBlockBytes, values: valueBlockBytes, slotPositions: 4 * blockSize };
    const buffers = new Map<string, BufferHandle>();
    try {
      for (const [label, blockBytes] of Object.entries(sizes)) {
        buffers.set(label, backend.allocate({ sizeBytes: numBlocks * blockBytes, usage: 'kv', label }));
      }
    } catch (error) {
      for (const buffer of buffers.values()) backend.free(buffer);
      throw error;
    }
    this.buffers = buffers;
  }

  /** @throws {ArgumentError | ShapeError} for invalid sizes and dtypes; {CapacityError} without memory */
  static async create(options: KvStorageOptions, blocks: KvBlocks): Promise<KvStorage> {
    checkOptions(options, kvStorageNames);
    const shape = resolveKvShape(options, blocks);
    const storage = new KvStorage(shape, options.backend ?? createReferenceBackend());
    await storage.setPositions(0, new Int32Array(shape.numBlocks * shape.blockSize).fill(-1));
    return storage;
  }

  /** Bytes of the three buffers. */
  get sizeBytes(): number {
    return [...this.buffers.values()].reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  }

  /**
   * Stores tokens `[T, K, H]` and `[T, K, D]` in physical slots.
   * @throws {ShapeError} when the arrays do not fit; {ArgumentError} for non-finite values if the dtype is a block
   *   format
   */
  async write(slots: Int32Array, positions: Int32Array, k: Float32Array, v: Float32Array): Promise<void> {
    const { numKvHeads, headDim, valueDim, dtype } = this.shape;
    const [keyWords, valueWords] = [numKvHeads * headDim, numKvHeads * valueDim];
    checkLength('k', k, slots.length * keyWords);
    checkLength('v', v, slots.length * valueWords);
    if (isBlockFormat(dtype.keys)) checkFinite('k', k);
    if (isBlockFormat(dtype.values)) checkFinite('v', v);
    const maxTokens = slots.length === 1 ? 1 : chunkTokens;
    for (let begin = 0; begin < slots.length; begin += maxTokens) {
      const end = Math.min(begin + maxTokens, slots.length);
      const program = await this.#appendProgram(maxTokens);
      await program.write('k', k.subarray(begin * keyWords, end * keyWords));
      await program.write('v', v.subarray(begin * valueWords, end * valueWords));
      const slotWords = program.scalars.slot('slots').fill(-1); // -1: the rest of the chunk stores nothing
      slotWords.set(slots.subarray(begin, end));
      program.scalars.slot('positions').set(positions.subarray(begin, end));
      await program.run();
    }
  }

  /** One key as stored: rotated and rounded to the dtype of the cache. */
  readKey(slot: number, kvHead: number): Promise<Float32Array> {
    const { keyRowBytes, dtype, headDim } = this.shape;
    return this.#readRow('keys', this.#rowOf(slot, kvHead) * keyRowBytes, keyRowBytes, dtype.keys, headDim);
  }

  readValue(slot: number, kvHead: number): Promise<Float32Array> {
    const { valueRowBytes, dtype, valueDim } = this.shape;
    return this.#readRow('values', this.#rowOf(slot, kvHead) * valueRowBytes, valueRowBytes, dtype.values, valueDim);
  }

  /** Sets the positions of slots from `firstSlot` on; -1 empties a slot. */
  setPositions(firstSlot: number, positions: Int32Array): Promise<void> {
    const bytes = new Uint8Array(positions.buffer, positions.byteOffset, positions.byteLength);
    return this.backend.write(this.#buffer('slotPositions'), firstSlot * 4, bytes);
  }

  /** Copies slots of one block to another, including positions. The slots after them become empty. */
  async copyBlock({ from, to, numSlots }: BlockCopy): Promise<void> {
    const { blockSize, keyBlockBytes, valueBlockBytes } = this.shape;
    await this.#copyRow('keys', from, to, keyBlockBytes);
    await this.#copyRow('values', from, to, valueBlockBytes);
    await this.#copyRow('slotPositions', from, to, 4 * blockSize);
    const empty = new Int32Array(blockSize - numSlots).fill(-1);
    await this.setPositions(to * blockSize + numSlots, empty);
  }

  /** Copies the bytes of a block, without positions: keys, then values. */
  async readPage(block: number, target: Uint8Array): Promise<void> {
    const { keyBlockBytes, valueBlockBytes, pageBytes } = this.shape;
    checkLength('page', target, pageBytes);
    await this.backend.read(this.#buffer('keys'), block * keyBlockBytes, target.subarray(0, keyBlockBytes));
    await this.backend.read(this.#buffer('values'), block * valueBlockBytes, target.subarray(keyBlockBytes));
  }

  async writePage(block: number, page: Uint8Array, positions: Int32Array): Promise<void> {
    const { keyBlockBytes, valueBlockBytes, blockSize, pageBytes } = this.shape;
    checkLength('page', page, pageBytes);
    await this.backend.write(this.#buffer('keys'), block * keyBlockBytes, page.subarray(0, keyBlockBytes));
    await this.backend.write(this.#buffer('values'), block * valueBlockBytes, page.subarray(keyBlockBytes));
    await this.setPositions(block * blockSize, positions);
  }

  /** Frees the memory on the backend. */
  async close(): Promise<void> {
    const programs = await Promise.all(this.#programs.values());
    this.#programs.clear();
    for (const program of programs) await program.close();
    for (const buffer of this.buffers.values()) this.backend.free(buffer);
  }

  #buffer(name: string): BufferHandle {
    return this.buffers.get(name) as BufferHandle;
  }

  /** Index of a row `[block, head, slot]`. */
  #rowOf(slot: number, kvHead: number): number {
    const { blockSize, numKvHeads } = this.shape;
    const offset = slot % blockSize;
    return ((slot - offset) / blockSize) * numKvHeads * blockSize + kvHead * blockSize + offset;
  }

  /** Copies a block of one buffer. */
  #copyRow(name: string, from: number, to: number, sizeBytes: number): Promise<void> {
    const buffer = this.#buffer(name);
    const [fromOffset, toOffset] = [from * sizeBytes, to * sizeBytes];
    return copyBytes(this.backend, { from: buffer, fromOffset, to: buffer, toOffset, sizeBytes });
  }

  async #readRow(name: string, byteOffset: number, numBytes: number, dtype: DType, dim: number): Promise<Float32Array> {
    const bytes = new Uint8Array(numBytes);
    await this.backend.read(this.#buffer(name), byteOffset, bytes);
    const row = new Float32Array(dim);
    decode(dtype, bytes, row);
    return row;
  }

  #appendProgram(maxTokens: number): Promise<BoundProgram> {
    let program = this.#programs.get(maxTokens);
    if (program === undefined) {
      program = this.#prepareAppend(maxTokens);
      this.#programs.set(maxTokens, program);
    }
    return program;
  }

  #prepareAppend(maxTokens: number): Promise<BoundProgram> {
    const { shape, backend, buffers } = this;
    const { numKvHeads, headDim, valueDim, rotateKeys } = shape;
    return BoundProgram.prepare({ backend, buffers }, (b) => {
      const { keys, values, slotPositions } = externalKv(b, shape, shape.numBlocks);
      const slots = b.scalar('slots', [maxTokens]);
      const k = b.external('k', 'kv', 'f32', [maxTokens, numKvHeads, headDim]);
      const v = b.external('v', 'kv', 'f32', [maxTokens, numKvHeads, valueDim]);
      const rotated = rotateKeys ? b.activation('hadamard', { x: k }) : k;
      b.append('kv-append', { k: rotated, v, slots }, {}, { keys, values });
      b.append('position-append', { slots, positions: b.scalar('positions', [maxTokens]) }, {}, { slotPositions });
    });
  }
}

/** Formats in which one non-finite value corrupts its block. */
function isBlockFormat(dtype: DType): boolean {
  return dtype !== 'f32' && dtype !== 'f16' && dtype !== 'bf16';
}

function checkLength(rule: string, { length }: { readonly length: number }, expected: number): void {
  if (length === expected) return;
  throw new ShapeError({ op: 'kv storage', rule, expected: `${expected} values`, actual: String(length) });
}

function checkFinite(argument: string, values: Float32Array): void {
  for (let i = 0; i < values.length; i++) {
    if (Number.isFinite(values[i])) continue;
    throw new ArgumentError({ argument, expected: 'finite values', actual: `${values[i]} at index ${i}` });
  }
}
