/** Computes the size of a cache; nothing is allocated. */
import { checkKvDTypes, type KvDTypes } from '@winnow/ops';
import { sizeOf, type DType } from '@winnow/tensor';

/** Sizes of one layer's cache. K KV heads, head sizes H for keys and D for values. */
export interface KvSizes {
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Default: `headDim`. */
  readonly valueDim?: number;
  /** The dtype of keys and values, or one for each. Default: f32. */
  readonly dtype?: DType | KvDTypes;
}

/**
 * Bytes of keys and values per position in one layer: `K * (bytes(H) + bytes(D))`.
 * @throws {ArgumentError} for dtypes that caches do not support
 * @throws {ShapeError} when a head is not a whole number of quantization blocks
 */
export function kvBytesPerToken({ numKvHeads, headDim, valueDim = headDim, dtype = 'f32' }: KvSizes): number {
  const { keys, values } = checkKvDTypes('dtype', dtype);
  return numKvHeads * (sizeOf(keys, headDim) + sizeOf(values, valueDim));
}

/** Bytes of a page of `blockSize` positions in one layer: keys, then values. */
export function kvPageBytes(sizes: KvSizes, blockSize: number): number {
  return blockSize * kvBytesPerToken(sizes);
}

/** Bytes of `numTokens` positions in `numLayers` layers, in whole blocks, with 4 bytes per slot for its position. */
export function kvCacheBytes(sizes: KvSizes & { numLayers: number; numTokens: number; blockSize: number }): number {
  const numSlots = Math.ceil(sizes.numTokens / sizes.blockSize) * sizes.blockSize;
  return numSlots * (sizes.numLayers * kvBytesPerToken(sizes) + 4);
}

/**
 * Bytes of one layer's recurrent state of matrices `[numHeads, keyDim, valueDim]` in f32, independent of the context.
 */
export function recurrentStateBytes(numHeads: number, keyDim: number, valueDim: number): number {
  return 4 * numHeads * keyDim * valueDim;
}
