import type { DType } from '@winnow/tensor';
import { checkBlockSize } from '../attention/kv-reader.js';
import { rowReader, rowWriter } from '../numerics/row-access.js';
import { cacheDTypes, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/** Dtypes without blocks: columns are written one number at a time. */
export const columnDTypes: readonly DType[] = ['f32', 'f16', 'bf16'];

/**
 * Maintains a transposed copy of the keys, block by block: `columns[c, k, h, s] = keys[c, k, s, h]` for the slots of
 * this step. Each component of a block's keys is then contiguous. Zeros lose their sign.
 *
 * Shapes: slots `[T]` i32, negative ones are skipped; keys `[C, K, S, H]` as stored; columns `[C, K, H, S]`.
 */
export const keyColumnsAppend: OpSpec = {
  name: 'key-columns-append',
  inputs: { slots: { dtypes: i32Only, shape: 'T' }, keys: { dtypes: cacheDTypes, shape: 'C K S H' } },
  outputs: { columns: { dtypes: columnDTypes, shape: 'C K H S', updates: true } },
  axes: { T: 'numTokens', C: 'numBlocks', K: 'numKvHeads', S: 'blockSize', H: 'headDim' },
  attributes: {},
  fixedAxes: ['C', 'K', 'S', 'H'],
  partition: 'tokens',
  work: '2 * slots.numTokens * keys.numKvHeads * keys.headDim',
  check: ({ keys }) => checkBlockSize('key-columns-append', keys[2]),
  bindReference({ inputs: { slots, keys }, outputs: { columns } }) {
    const [, numKvHeads, blockSize, headDim] = keys.shape;
    const read = rowReader(keys);
    const write = rowWriter(columns);
    const key = new Float32Array(headDim);
    return () => {
      const numTokens = slots.shape[0];
      for (let t = 0; t < numTokens; t++) {
        const slot = slots.data[t];
        if (slot < 0) continue;
        const [block, offset] = [Math.floor(slot / blockSize), slot % blockSize];
        for (let head = 0; head < numKvHeads; head++) {
          const first = block * numKvHeads + head;
          read((first * blockSize + offset) * headDim, headDim, key, 0);
          for (let i = 0; i < headDim; i++) {
            key[i] += 0; // -0 becomes 0
            write(key, i, 1, (first * headDim + i) * blockSize + offset);
          }
        }
      }
    };
  },
  flops: () => 0,
  bytes: ({ slots, keys }) => 8 * slots[0] * keys[1] * keys[3],
};
