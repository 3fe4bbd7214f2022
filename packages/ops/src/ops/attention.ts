import { attentionAxes, kvReader, kvViewInputs } from '../attention/kv-reader.js';
import { positionBiasInput, sinkLogitsInput } from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention } from '../attention/visibility.js';
import { ShapeError } from '@winnow/tensor';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { attentionBytes, attentionFlops, bindAttend } from './attention-partial.js';

/**
 * Dense attention of this step's queries over a cache: `y = softmax(scale * q k^T + bias + mask) v` per query head. With sinks,
 * the softmax also runs over the sink of the head, whose value is 0.
 *
 * Shapes: q `[T, N, H]` f32, positions and sequences `[T]` i32, the cache as in `KvView`, sinkLogits `[N]` f32, positionBias
 * `[R, N]` f32, y `[T, N, D]` f32. Query head `n` reads KV head `floor(n * K / N)`. A query without visible keys gives zeros.
 * Numerics: softmax with the exact maximum, sums in f64.
 * Cost: `T * N * contextLength * (H + D)` multiply-adds; each K and V row needs to be read once per KV head and query
 * tile.
 */
export const attention: OpSpec = {
  name: 'attention',
  inputs: {
    q: { dtypes: f32Only, shape: 'T N H' },
    positions: { dtypes: i32Only, shape: 'T' },
    sequences: { dtypes: i32Only, shape: 'T' },
    ...kvViewInputs,
    sinkLogits: sinkLogitsInput,
    positionBias: positionBiasInput,
  },
  outputs: { y: { dtypes: f32Only, shape: 'T N D' } },
  axes: { ...attentionAxes, R: 'numBiases' },
  attributes: attentionAttributes,
  fixedAxes: ['N', 'H', 'K', 'S', 'C', 'D', 'M'],
  partition: 'heads',
  work: '0.5 * q.numElements * blockTable.maxBlocks * keys.blockSize', // every slot that the longest sequence may use counts
  check(shapes, attributes) {
    checkAttention('attention', shapes, attributes);
    const numBiases = Number(shapes['positionBias']?.[0] ?? 1);
    if (numBiases % 2 === 1) return;
    const expected = 'an odd number, with one for the own position';
    throw new ShapeError({ op: 'attention', rule: 'position biases', expected, actual: String(numBiases) });
  },
  bindReference({ inputs, outputs, attributes }) {
    const { q, positions, sequences, sinkLogits, positionBias } = inputs;
    const cache = kvReader(inputs);
    const { valueDim } = cache;
    const ys = outputs['y'].data as Float32Array;
    const attend = bindAttend(q.data as Float32Array, q.shape[1], cache, attributes, positionBias);
    const state = { m: new Float32Array(1), l: new Float32Array(1), o: new Float32Array(valueDim) };
    return () => {
      const [numTokens, numHeads] = q.shape;
      for (let t = 0; t < numTokens; t++) {
        const sequence = sequences.data[t];
        const contextLength = cache.contextLength(sequence);
        for (let head = 0; head < numHeads; head++) {
          attend(t, head, positions.data[t], sequence, 0, contextLength, state, 0, sinkLogits?.data[head]);
          const begin = (t * numHeads + head) * valueDim;
          const factor = state.l[0] === 0 ? 0 : 1 / state.l[0];
          for (let i = 0; i < valueDim; i++) ys[begin + i] = state.o[i] * factor;
        }
      }
    };
  },
  flops: attentionFlops,
  bytes: attentionBytes,
};
