import { eachSummarized, summaryDims } from '../attention/summary-append.js';
import { cacheDTypes, f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { checkSummaries } from './block-mean-append.js';

/**
 * Maintains, for every page of `S / G` slots, the box of its keys (minimum and maximum of each component) and the
 * maximum norm of its values, for upper bounds on logits and errors.
 *
 * Shapes: slots `[T]` i32; keys `[C, K, S, H]`, values `[C, K, S, D]` as stored; counts `[C, G, K]` i32; keyMin, keyMax
 * `[C, G, K, H]`, valueNorms `[C, G, K]` f32. Counts and rebuilding: as in `block-mean-append`.
 * Numerics: boxes are exact. A norm is summed in f64 and then rounded up, so that it is a bound despite rounding:
 * `sqrt(sum v^2) * (1 + 2^-18)`.
 */
export const blockBoxAppend: OpSpec = {
  name: 'block-box-append',
  inputs: {
    slots: { dtypes: i32Only, shape: 'T' },
    keys: { dtypes: cacheDTypes, shape: 'C K S H' },
    values: { dtypes: cacheDTypes, shape: 'C K S D' },
  },
  outputs: {
    counts: { dtypes: i32Only, shape: 'C G K', updates: true },
    keyMin: { dtypes: f32Only, shape: 'C G K H', updates: true },
    keyMax: { dtypes: f32Only, shape: 'C G K H', updates: true },
    valueNorms: { dtypes: f32Only, shape: 'C G K', updates: true },
  },
  axes: { T: 'numTokens', C: 'numBlocks', K: 'numKvHeads', S: 'blockSize', H: 'headDim', D: 'valueDim', G: 'numParts' },
  attributes: {},
  fixedAxes: ['C', 'G', 'K', 'S', 'H', 'D'],
  partition: 'heads',
  work: '2 * slots.numTokens * keys.numKvHeads * keys.headDim',
  check: ({ keys, counts }) => checkSummaries('block-box-append', Number(keys[2]), Number(counts[1])),
  bindReference({ inputs: { slots, keys, values }, outputs: { counts, keyMin, keyMax, valueNorms } }) {
    const { headDim } = summaryDims(keys, values);
    return eachSummarized(slots, keys, values, counts, {
      reset(summary) {
        keyMin.data.fill(Infinity, summary * headDim, (summary + 1) * headDim);
        keyMax.data.fill(-Infinity, summary * headDim, (summary + 1) * headDim);
        valueNorms.data[summary] = 0;
      },
      add(summary, _count, key, value) {
        for (let i = 0; i < headDim; i++) {
          const at = summary * headDim + i;
          keyMin.data[at] = Math.min(keyMin.data[at], key[i]);
          keyMax.data[at] = Math.max(keyMax.data[at], key[i]);
        }
        let squares = 0;
        for (const v of value) squares += v * v;
        valueNorms.data[summary] = Math.max(valueNorms.data[summary], Math.sqrt(squares) * normMargin);
      },
    });
  },
  flops: ({ slots, keys, values }) => 2 * slots[0] * keys[1] * (keys[3] + values[3]),
  bytes: ({ slots, keys, values }) => 4 * slots[0] * keys[1] * (5 * keys[3] + values[3]),
};

/** Exceeds the rounding errors of a sum in f64 and of its square root in f32. */
export const normMargin: number = 1 + 2 ** -18;
