/** Sizes and dtypes of a layer's cache with every default filled in, and the tensors that ops see of it. */
import { cacheDTypes, type KvView, type ProgramBuilder } from '@winnow/ops';
import { ArgumentError, sizeOf, type DType } from '@winnow/tensor';
import type { KvSizes } from '../memory.js';

export interface KvShapeOptions extends KvSizes {
  readonly numBlocks: number;
  /** Slots per block. */
  readonly blockSize: number;
  /** Rotate keys, and the queries that meet them, by a Hadamard matrix. For 4-bit keys. Default false. */
  readonly rotateKeys?: boolean;
}

/** The cache of one layer: keys `[C, K, S, H]` and values `[C, K, S, D]` for C blocks of S slots and K KV heads. */
export interface KvShape extends Required<KvShapeOptions> {
  readonly keyRowBytes: number;
  readonly valueRowBytes: number;
  /** Bytes of the keys of one block. */
  readonly keyBlockBytes: number;
  readonly valueBlockBytes: number;
  /** Bytes of a page: the keys of a block, then its values. */
  readonly pageBytes: number;
}

/**
 * @throws {ArgumentError} for sizes that are not positive integers and dtypes that a cache cannot have
 * @throws {ShapeError} when a head is not a whole number of quantization blocks
 */
export function resolveKvShape(options: KvShapeOptions): KvShape {
  const { numBlocks, blockSize, numKvHeads, headDim, valueDim = headDim } = options;
  const { keyDType = 'f32', valueDType = 'f32', rotateKeys = false } = options;
  for (const [argument, value] of Object.entries({ numBlocks, blockSize, numKvHeads, headDim, valueDim })) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
    }
  }
  checkDType('keyDType', keyDType);
  checkDType('valueDType', valueDType);
  if (rotateKeys && headDim % 2 === 1) {
    throw new ArgumentError({ argument: 'headDim', expected: 'an even size for rotation', actual: String(headDim) });
  }
  const keyRowBytes = sizeOf(keyDType, headDim);
  const valueRowBytes = sizeOf(valueDType, valueDim);
  const keyBlockBytes = numKvHeads * blockSize * keyRowBytes;
  const valueBlockBytes = numKvHeads * blockSize * valueRowBytes;
  return {
    ...{ numBlocks, blockSize, numKvHeads, headDim, valueDim, keyDType, valueDType, rotateKeys },
    ...{ keyRowBytes, valueRowBytes, keyBlockBytes, valueBlockBytes, pageBytes: keyBlockBytes + valueBlockBytes },
  };
}

/** The tensors of a cache in a program, bound to the buffers `keys`, `values` and `slotPositions`. */
export function cacheTensors(b: ProgramBuilder, shape: KvShape): Omit<KvView, 'blockTable' | 'contextLengths'> {
  const { numBlocks, numKvHeads, blockSize, headDim, valueDim, keyDType, valueDType } = shape;
  return {
    keys: b.external('keys', 'kv', keyDType, [numBlocks, numKvHeads, blockSize, headDim]),
    values: b.external('values', 'kv', valueDType, [numBlocks, numKvHeads, blockSize, valueDim]),
    slotPositions: b.external('slotPositions', 'kv', 'i32', [numBlocks, blockSize]),
  };
}

function checkDType(argument: string, dtype: DType): void {
  if (cacheDTypes.includes(dtype)) return;
  throw new ArgumentError({ argument, expected: cacheDTypes.join(' | '), actual: dtype });
}
