/** Sizes and dtypes of a layer's cache with every default filled in. */
import { checkKvDTypes, type KvRows } from '@winnow/ops';
import { ArgumentError, sizeOf } from '@winnow/tensor';
import type { KvSizes } from '../memory.js';

export interface KvShapeOptions extends KvSizes {
  /** Rotate keys, and queries to match, by a Hadamard matrix. For 4-bit keys. Default false. */
  readonly rotateKeys?: boolean;
}

export interface KvBlocks {
  readonly numBlocks: number;
  /** Slots per block. */
  readonly blockSize: number;
}

/** The cache of one layer: keys `[C, K, S, H]` and values `[C, K, S, D]` for C blocks of S slots and K KV heads. */
export interface KvShape extends KvRows, KvBlocks {
  readonly rotateKeys: boolean;
  readonly keyRowBytes: number;
  readonly valueRowBytes: number;
  /** Bytes of the keys of one block. */
  readonly keyBlockBytes: number;
  readonly valueBlockBytes: number;
  /** Bytes of a page: the keys of a block, then its values. */
  readonly pageBytes: number;
}

/**
 * @throws {ArgumentError} for sizes that are not positive integers and invalid dtypes
 * @throws {ShapeError} when a head is not a whole number of quantization blocks
 */
export function resolveKvShape(options: KvShapeOptions, { numBlocks, blockSize }: KvBlocks): KvShape {
  const { numKvHeads, headDim, valueDim = headDim } = options;
  const { rotateKeys = false } = options;
  for (const [argument, value] of Object.entries({ numBlocks, blockSize, numKvHeads, headDim, valueDim })) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new ArgumentError({ argument, expected: 'a positive integer', actual: String(value) });
    }
  }
  const dtype = checkKvDTypes('dtype', options.dtype ?? 'f32');
  if (rotateKeys && headDim % 2 === 1) {
    throw new ArgumentError({ argument: 'headDim', expected: 'an even size for rotation', actual: String(headDim) });
  }
  const keyRowBytes = sizeOf(dtype.keys, headDim);
  const valueRowBytes = sizeOf(dtype.values, valueDim);
  const keyBlockBytes = numKvHeads * blockSize * keyRowBytes;
  const valueBlockBytes = numKvHeads * blockSize * valueRowBytes;
  return {
    ...{ numBlocks, blockSize, numKvHeads, headDim, valueDim, dtype, rotateKeys },
    ...{ keyRowBytes, valueRowBytes, keyBlockBytes, valueBlockBytes, pageBytes: keyBlockBytes + valueBlockBytes },
  };
}
