import { tensorBytes } from '@winnow/tensor';
import { checkBlockSize } from '../attention/kv-reader.js';
import { rowWriter } from '../numerics/row-access.js';
import { cacheDTypes, f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Stores the keys and values of this step's tokens in their cache slots, rounded to the cache's dtypes.
 *
 * Shapes: k `[T, K, H]`, v `[T, K, D]` f32; slots `[T]` i32; keys `[C, K, S, H]`, values `[C, K, S, D]` for C blocks of
 * S slots and K KV heads. Slot `s` is slot `s % S` of block `floor(s / S)`; a negative slot stores nothing. Two tokens
 * of one step must not share a slot.
 */
export const kvAppend: OpSpec = {
  name: 'kv-append',
  inputs: {
    k: { dtypes: f32Only, shape: 'T K H' },
    v: { dtypes: f32Only, shape: 'T K D' },
    slots: { dtypes: i32Only, shape: 'T' },
  },
  outputs: {
    keys: { dtypes: cacheDTypes, shape: 'C K S H', updates: true },
    values: { dtypes: cacheDTypes, shape: 'C K S D', updates: true },
  },
  axes: { T: 'numTokens', K: 'numKvHeads', H: 'headDim', D: 'valueDim', C: 'numBlocks', S: 'blockSize' },
  attributes: {},
  fixedAxes: ['C', 'K', 'S', 'H', 'D'],
  partition: 'tokens',
  check: ({ keys }) => checkBlockSize('kv-append', keys[2]),
  bindReference({ inputs: { k, v, slots }, outputs: { keys, values } }) {
    const writeKey = rowWriter(keys);
    const writeValue = rowWriter(values);
    const [, numKvHeads, blockSize, headDim] = keys.shape;
    const valueDim = values.shape[3];
    return () => {
      const numTokens = slots.shape[0];
      for (let t = 0; t < numTokens; t++) {
        const slot = slots.data[t];
        if (slot < 0) continue;
        const block = Math.floor(slot / blockSize);
        for (let head = 0; head < numKvHeads; head++) {
          const cacheRow = (block * numKvHeads + head) * blockSize + (slot % blockSize);
          const tokenRow = t * numKvHeads + head;
          writeKey(k.data as Float32Array, tokenRow * headDim, headDim, cacheRow * headDim);
          writeValue(v.data as Float32Array, tokenRow * valueDim, valueDim, cacheRow * valueDim);
        }
      }
    };
  },
  flops: () => 0,
  bytes: ({ k, v, slots }, _attributes, { keys = 'f32', values = 'f32' } = {}) =>
    tensorBytes('f32', k) + tensorBytes('f32', v) + 4 * slots[0] + tensorBytes(keys, k) + tensorBytes(values, v),
};
