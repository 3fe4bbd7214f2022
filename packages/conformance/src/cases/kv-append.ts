import { cacheDTypes } from '@winnow/ops';
import { dtypeInfo, encode, sizeOf, type DType } from '@winnow/tensor';
import type { CaseTensor, KernelCase } from '../kernel-case.js';
import { finiteSpecials, ints, product, gaussianWith } from '../values.js';
import { shuffledSlots } from './position-append.js';

interface AppendShape {
  readonly numTokens: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly blockSize: number;
}

/**
 * Ties between two numbers of bf16 and of f16, with the even one above and below; the largest number of f16, and values
 * beyond it.
 */
const halfway = [1 + 3 * 2 ** -8, 1 + 2 ** -8, 1 + 3 * 2 ** -11, 1 + 2 ** -11, 65519, 65520];
const contents: readonly number[] = [...halfway, ...finiteSpecials];

/** Exact: each head's row becomes the bytes of the codec, wherever its slot is; all other bytes stay. */
function appendCase(keyDType: DType, valueDType: DType, shape: AppendShape): KernelCase {
  const { numTokens, numKvHeads, headDim, valueDim, blockSize } = shape;
  return {
    op: 'kv-append',
    name: `${keyDType} / ${valueDType}, ${numTokens} tokens, ${numKvHeads} heads of ${headDim} / ${valueDim}, blocks of ${blockSize}`,
    dtypes: { keys: keyDType, values: valueDType },
    attributes: {},
    create(rng) {
      const numBlocks = Math.ceil((numTokens + 3) / blockSize) + 1;
      const k = gaussianWith(rng, [numTokens, numKvHeads, headDim], contents, 0);
      const v = gaussianWith(rng, [numTokens, numKvHeads, valueDim], contents, 0);
      const slots = shuffledSlots(rng, numTokens, numBlocks * blockSize);
      const cache = (dtype: DType, dim: number): CaseTensor => {
        const dims = [numBlocks, numKvHeads, blockSize, dim];
        const bytes = Uint8Array.from({ length: sizeOf(dtype, product(dims)) }, () => rng.nextInt(256));
        return { dtype, shape: dims, bytes };
      };
      const [keys, values] = [cache(keyDType, headDim), cache(valueDType, valueDim)];
      return {
        inputs: { k, v, slots: ints([numTokens], slots, 0) },
        updated: { keys, values },
        expected: {
          keys: { kind: 'bytes', bytes: appended(keys, k, slots) },
          values: { kind: 'bytes', bytes: appended(values, v, slots) },
        },
      };
    },
  };
}

/** The cache after `rows` `[T, K, dim]` went to their slots. */
function appended(cache: CaseTensor, rows: CaseTensor, slots: readonly number[]): Uint8Array {
  const [, numKvHeads, blockSize, dim] = cache.shape;
  const bytes = cache.bytes.slice();
  const values = new Float32Array(rows.bytes.slice().buffer);
  const rowBytes = sizeOf(cache.dtype, dim);
  for (const [t, slot] of slots.entries()) {
    if (slot < 0) continue;
    const [block, offset] = [Math.floor(slot / blockSize), slot % blockSize];
    for (let head = 0; head < numKvHeads; head++) {
      const byteOffset = (block * numKvHeads * blockSize + head * blockSize + offset) * rowBytes;
      encode(cache.dtype, values, bytes, { valueOffset: (t * numKvHeads + head) * dim, byteOffset, numValues: dim });
    }
  }
  return bytes;
}

const plainShapes: readonly AppendShape[] = [
  { numTokens: 0, numKvHeads: 2, headDim: 32, valueDim: 32, blockSize: 4 },
  { numTokens: 1, numKvHeads: 1, headDim: 64, valueDim: 64, blockSize: 16 },
  { numTokens: 5, numKvHeads: 3, headDim: 96, valueDim: 32, blockSize: 1 },
  { numTokens: 17, numKvHeads: 2, headDim: 32, valueDim: 64, blockSize: 8 },
];

export const kvAppendCases: readonly KernelCase[] = [
  ...cacheDTypes.flatMap((dtype) => plainShapes.map((shape) => appendCase(dtype, dtype, shape))),
  ...cacheDTypes
    .filter((dtype) => dtypeInfo(dtype).blockSize === 1)
    .flatMap((dtype) =>
      [1, 7, 33].map((dim) =>
        appendCase(dtype, dtype, { numTokens: 6, numKvHeads: 2, headDim: dim, valueDim: dim + 1, blockSize: 3 }),
      ),
    ),
  appendCase('f16', 'q8_0', plainShapes[3]),
  appendCase('q8_0', 'f32', plainShapes[3]),
];
