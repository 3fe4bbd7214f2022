import { cacheDTypes } from '@winnow/ops';
import { dtypeInfo, encode, sizeOf, type DType } from '@winnow/tensor';
import type { KernelCase } from '../kernel-case.js';
import { numbersOf, product, randomTensor } from '../values.js';
import { ints } from '../values.js';
import { shuffledSlots } from './position-append.js';

/** Exact: each number of a stored key becomes the bytes that the codec gives it; all other bytes stay. The sign of zero is ignored. */
function columnsCase(
  keyDType: DType,
  columnDType: DType,
  numTokens: number,
  headDim: number,
  blockSize: number,
): KernelCase {
  const numKvHeads = 2;
  return {
    op: 'key-columns-append',
    name: `${keyDType} to ${columnDType}, ${numTokens} tokens, heads of ${headDim}, blocks of ${blockSize}`,
    dtypes: { keys: keyDType, columns: columnDType },
    attributes: {},
    create(rng) {
      const numBlocks = Math.ceil((numTokens + 3) / blockSize) + 1;
      const keys = randomTensor(rng, keyDType, [numBlocks, numKvHeads, blockSize, headDim]);
      const columns = randomTensor(rng, columnDType, [numBlocks, numKvHeads, headDim, blockSize]);
      const slots = shuffledSlots(rng, numTokens, numBlocks * blockSize);
      const rows = Float32Array.from(numbersOf(keys), (x) => x + 0);
      const bytes = columns.bytes.slice();
      for (const slot of slots) {
        if (slot < 0) continue;
        const [block, offset] = [Math.floor(slot / blockSize), slot % blockSize];
        for (let first = block * numKvHeads; first < (block + 1) * numKvHeads; first++) {
          for (let i = 0; i < headDim; i++) {
            const valueOffset = (first * blockSize + offset) * headDim + i;
            const byteOffset = sizeOf(columnDType, product([first * headDim + i, blockSize]) + offset);
            encode(columnDType, rows, bytes, { valueOffset, byteOffset, numValues: 1 });
          }
        }
      }
      return {
        inputs: { slots: ints([numTokens], slots, 0), keys },
        updated: { columns },
        expected: { columns: { kind: 'bytes', bytes } },
      };
    },
  };
}

export const keyColumnsAppendCases: readonly KernelCase[] = [
  ...cacheDTypes.flatMap((dtype) =>
    (['f32', 'f16', 'bf16'] as const).map((columns) =>
      columnsCase(dtype, columns, 9, dtypeInfo(dtype).blockSize === 1 ? 20 : 32, 4),
    ),
  ),
  ...[0, 1, 2].map((numTokens) => columnsCase('f32', 'f32', numTokens, 64, 16)),
  ...[1, 7, 33].map((headDim) => columnsCase('f16', 'f16', 17, headDim, 8)),
];
