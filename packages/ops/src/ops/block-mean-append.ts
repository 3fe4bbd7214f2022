import { ShapeError } from '@winnow/tensor';
import { checkBlockSize } from '../attention/kv-reader.js';
import { eachSummarized, summaryDims } from '../attention/summary-append.js';
import { cacheDTypes, f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';

/**
 * Maintains the means of the keys and of the values of every block of `S / G` slots, G per cache block: after the
 * step's keys and values were stored, `mean += (x - mean) / count` for each of its tokens.
 *
 * Shapes: slots `[T]` i32; keys `[C, K, S, H]`, values `[C, K, S, D]` as stored; counts `[C, G, K]` i32; keyMeans `[C,
 * G, K, H]`, valueMeans `[C, G, K, D]` f32. `counts` is the number of slots that a mean covers. A token at offset `o`
 * of a block whose count is not `o` first rebuilds the means of slots `[0, o)` from the stored data, so that
 * truncation, forks and reused blocks need no special handling; `o = 0` starts over. Tokens of a block come in the
 * order of their slots.
 * Numerics: differences and quotients in f64, the mean is rounded to f32 after each token.
 * Cost: `H + D` per token and head.
 */
export const blockMeanAppend: OpSpec = {
  name: 'block-mean-append',
  inputs: {
    slots: { dtypes: i32Only, shape: 'T' },
    keys: { dtypes: cacheDTypes, shape: 'C K S H' },
    values: { dtypes: cacheDTypes, shape: 'C K S D' },
  },
  outputs: {
    counts: { dtypes: i32Only, shape: 'C G K', updates: true },
    keyMeans: { dtypes: f32Only, shape: 'C G K H', updates: true },
    valueMeans: { dtypes: f32Only, shape: 'C G K D', updates: true },
  },
  axes: { T: 'numTokens', C: 'numBlocks', K: 'numKvHeads', S: 'blockSize', H: 'headDim', D: 'valueDim', G: 'numParts' },
  attributes: {},
  fixedAxes: ['C', 'G', 'K', 'S', 'H', 'D'],
  partition: 'heads',
  work: '2 * slots.numTokens * keys.numKvHeads * keys.headDim',
  check: ({ keys, counts }) => checkSummaries('block-mean-append', Number(keys[2]), Number(counts[1])),
  bindReference({ inputs: { slots, keys, values }, outputs: { counts, keyMeans, valueMeans } }) {
    const { headDim, valueDim } = summaryDims(keys, values);
    const move = (means: Float32Array | Int32Array | Uint8Array, begin: number, row: Float32Array, n: number): void => {
      for (let i = 0; i < row.length; i++) means[begin + i] += (row[i] - means[begin + i]) / n;
    };
    return eachSummarized(slots, keys, values, counts, {
      reset(summary) {
        keyMeans.data.fill(0, summary * headDim, (summary + 1) * headDim);
        valueMeans.data.fill(0, summary * valueDim, (summary + 1) * valueDim);
      },
      add(summary, count, key, value) {
        move(keyMeans.data, summary * headDim, key, count);
        move(valueMeans.data, summary * valueDim, value, count);
      },
    });
  },
  flops: ({ slots, keys, values }) => 3 * slots[0] * keys[1] * (keys[3] + values[3]),
  bytes: ({ slots, keys, values }) => 12 * slots[0] * keys[1] * (keys[3] + values[3]),
};

/** @throws {ShapeError} unless the summaries divide a cache block evenly */
export function checkSummaries(op: string, blockSize: number, numParts: number): void {
  checkBlockSize(op, blockSize);
  if (numParts >= 1 && blockSize % numParts === 0) return;
  const expected = `a divisor of ${blockSize} slots`;
  throw new ShapeError({ op, rule: 'summaries per block', expected, actual: String(numParts) });
}
