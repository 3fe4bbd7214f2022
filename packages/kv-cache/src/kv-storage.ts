/**
 * The memory of one layer's cache: typed arrays in the layout of `KvView` of @winnow/ops, keys `[C, K, S, H]` and values
 * `[C, K, S, D]` for C blocks of S slots, converted to their dtypes when they are stored. Kernels can read it as it is.
 */
import {
  ArgumentError,
  CapacityError,
  canEncode,
  decoder,
  encoder,
  ShapeError,
  sizeOf,
  type DType,
} from '@winnow/tensor';
import type { BlockCopy } from './block-types.js';
import { rotateRows } from './hadamard.js';
import { kvPageBytes, type KvSizes } from './memory.js';

export interface KvStorageOptions extends KvSizes {
  readonly numBlocks: number;
  readonly blockSize: number;
  /** Rotate keys (and the queries that meet them) by a Hadamard matrix. For 4-bit keys. Default false. */
  readonly rotateKeys?: boolean;
}

export interface KvStorage {
  readonly numBlocks: number;
  readonly blockSize: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly keyDType: DType;
  readonly valueDType: DType;
  readonly rotateKeys: boolean;
  /** f32 as `Float32Array`, everything else as packed bytes. */
  readonly keys: Float32Array | Uint8Array; // [C, K, S, H]
  readonly values: Float32Array | Uint8Array; // [C, K, S, D]
  readonly slotPositions: Int32Array; // [C, S], -1 in empty slots
  readonly sizeBytes: number;
  /** Bytes of a page: keys and values of one block. */
  readonly pageBytes: number;
  /**
   * Stores tokens `[T, K, H]` and `[T, K, D]` in physical slots.
   * @throws {ShapeError} when the arrays do not fit
   * @throws {ArgumentError} for values that are not finite, if the dtype is a block format
   */
  write(slots: ArrayLike<number>, positions: ArrayLike<number>, k: Float32Array, v: Float32Array): void;
  /** Copies one key, as stored, to `out[outOffset...]`. */
  readKey(slot: number, kvHead: number, out: Float32Array, outOffset: number): void;
  readValue(slot: number, kvHead: number, out: Float32Array, outOffset: number): void;
  /** Copies slots of one block to another, positions included. */
  copyBlock(copy: BlockCopy): void;
  /** Copies the bytes of a block, without positions: keys, then values. */
  readPage(block: number, target: Uint8Array): void;
  writePage(block: number, bytes: Uint8Array, positions: ArrayLike<number>): void;
}

/** @throws {ArgumentError} for dtypes that cannot be written and sizes that make no sense; {CapacityError} without memory */
export function createKvStorage(options: KvStorageOptions): KvStorage {
  const { numBlocks, blockSize, numKvHeads, headDim, valueDim = headDim } = options;
  const { keyDType = 'f32', valueDType = 'f32', rotateKeys = false } = options;
  for (const [argument, value] of Object.entries({ numBlocks, blockSize, numKvHeads, headDim, valueDim })) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
    }
  }
  const pageBytes = kvPageBytes(options, blockSize);
  const keyRowBytes = sizeOf(keyDType, headDim);
  const valueRowBytes = sizeOf(valueDType, valueDim);
  const keyBlockBytes = numKvHeads * blockSize * keyRowBytes;
  const valueBlockBytes = numKvHeads * blockSize * valueRowBytes;
  const keyBytes = allocate(numBlocks * keyBlockBytes);
  const valueBytes = allocate(numBlocks * valueBlockBytes);
  const encodeKey = writable('keyDType', keyDType);
  const encodeValue = writable('valueDType', valueDType);
  const decodeKey = decoder(keyDType);
  const decodeValue = decoder(valueDType);
  const slotPositions = new Int32Array(numBlocks * blockSize).fill(-1);
  const rotated = new Float32Array(numKvHeads * headDim);
  if (rotateKeys) rotateRows(rotated, headDim);

  /** Index of a row `[block, head, slot]`. */
  function rowOf(slot: number, kvHead: number): number {
    const offset = slot % blockSize;
    return ((slot - offset) / blockSize) * numKvHeads * blockSize + kvHead * blockSize + offset;
  }

  return {
    numBlocks,
    blockSize,
    numKvHeads,
    headDim,
    valueDim,
    keyDType,
    valueDType,
    rotateKeys,
    keys: keyDType === 'f32' ? new Float32Array(keyBytes.buffer) : keyBytes,
    values: valueDType === 'f32' ? new Float32Array(valueBytes.buffer) : valueBytes,
    slotPositions,
    sizeBytes: keyBytes.byteLength + valueBytes.byteLength + slotPositions.byteLength,
    pageBytes,
    write(slots, positions, k, v) {
      checkLength('k', k, slots.length * numKvHeads * headDim);
      checkLength('v', v, slots.length * numKvHeads * valueDim);
      if (keyDType !== 'f32' && keyDType !== 'f16') checkFinite('k', k);
      if (valueDType !== 'f32' && valueDType !== 'f16') checkFinite('v', v);
      for (let t = 0; t < slots.length; t++) {
        const slot = slots[t];
        let source = k;
        let offset = t * numKvHeads * headDim;
        if (rotateKeys) {
          rotated.set(k.subarray(offset, offset + rotated.length));
          rotateRows(rotated, headDim);
          source = rotated;
          offset = 0;
        }
        for (let head = 0; head < numKvHeads; head++) {
          const row = rowOf(slot, head);
          encodeKey(source, offset + head * headDim, keyBytes, row * keyRowBytes, headDim);
          encodeValue(v, (t * numKvHeads + head) * valueDim, valueBytes, row * valueRowBytes, valueDim);
        }
        slotPositions[slot] = positions[t];
      }
    },
    readKey(slot, kvHead, out, outOffset) {
      decodeKey(keyBytes, rowOf(slot, kvHead) * keyRowBytes, out, outOffset, headDim);
    },
    readValue(slot, kvHead, out, outOffset) {
      decodeValue(valueBytes, rowOf(slot, kvHead) * valueRowBytes, out, outOffset, valueDim);
    },
    copyBlock({ from, to, numSlots }) {
      for (let head = 0; head < numKvHeads; head++) {
        const source = (from * numKvHeads + head) * blockSize;
        const target = (to * numKvHeads + head) * blockSize;
        keyBytes.copyWithin(target * keyRowBytes, source * keyRowBytes, (source + numSlots) * keyRowBytes);
        valueBytes.copyWithin(target * valueRowBytes, source * valueRowBytes, (source + numSlots) * valueRowBytes);
      }
      slotPositions.copyWithin(to * blockSize, from * blockSize, from * blockSize + numSlots);
      slotPositions.fill(-1, to * blockSize + numSlots, (to + 1) * blockSize);
    },
    readPage(block, target) {
      checkLength('page', target, pageBytes);
      target.set(keyBytes.subarray(block * keyBlockBytes, (block + 1) * keyBlockBytes));
      target.set(valueBytes.subarray(block * valueBlockBytes, (block + 1) * valueBlockBytes), keyBlockBytes);
    },
    writePage(block, bytes, positions) {
      checkLength('page', bytes, pageBytes);
      keyBytes.set(bytes.subarray(0, keyBlockBytes), block * keyBlockBytes);
      valueBytes.set(bytes.subarray(keyBlockBytes), block * valueBlockBytes);
      slotPositions.set(positions, block * blockSize);
    },
  };
}

function allocate(numBytes: number): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(numBytes);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new CapacityError({
      resource: 'kv storage',
      needed: numBytes,
      available: 0,
      unit: 'bytes',
      hint: error.message,
    });
  }
}

function writable(argument: string, dtype: DType): ReturnType<typeof encoder> {
  if (canEncode(dtype)) return encoder(dtype);
  throw new ArgumentError({ argument, expected: 'a data type that can be written', actual: dtype });
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
