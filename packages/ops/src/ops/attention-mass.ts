import { attentionAxes, kvReader } from '../attention/kv-reader.js';
import { attentionFixedAxes, attentionInputs, bindLogit, maxSlotsOf } from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention, visibility } from '../attention/visibility.js';
import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { attentionBytes, attentionFlops } from './attention-partial.js';
import { softmaxRow } from './softmax.js';

/**
 * The attention mass of each slot: the probability of its key in `attention`, summed over the query heads of a KV head
 * and over the step's tokens of a sequence. Heavy-hitter eviction scores positions by it (arXiv:2306.14048).
 *
 * Shapes: inputs as in `attention`, of which values are not read; previous and mass `[B, K, M, S]` f32: slot `s` of
 * block `m` of the table of a sequence. Masses are added to previous, such as those of the previous layer, or to 0
 * without it. mass may alias it. Slots that no query attends to keep their values.
 * Numerics: softmax with the exact maximum in f64; the sum over tokens and heads is rounded to f32 once. The partition
 * is by sequence and KV head.
 * Cost: `T * N * contextLength * H` multiply-adds, as many as the logits of `attention`.
 */
export const attentionMass: OpSpec = {
  name: 'attention-mass',
  inputs: { ...attentionInputs, previous: { dtypes: f32Only, shape: 'B K M S', optional: true } },
  outputs: { mass: { dtypes: f32Only, shape: 'B K M S', mayAlias: 'previous' } },
  axes: attentionAxes,
  attributes: attentionAttributes,
  fixedAxes: attentionFixedAxes,
  partition: 'heads',
  work: '0.25 * q.numElements * blockTable.maxBlocks * keys.blockSize',
  check: (shapes, attributes) => checkAttention('attention-mass', shapes, attributes),
  bindReference({ inputs, outputs: { mass }, attributes }) {
    const { q, positions, sequences, blockTable, contextLengths, keys, previous } = inputs;
    const cache = kvReader(inputs);
    const { headDim, numKvHeads } = cache;
    const numHeads = q.shape[1];
    const groupSize = numHeads / numKvHeads;
    const logit = bindLogit(q.data as Float32Array, cache, attributes);
    const isVisible = visibility(attributes);
    const maxSlots = maxSlotsOf(blockTable.shape, keys.shape);
    const key = new Float32Array(headDim);
    const logits = new Float64Array(maxSlots);
    const sums = new Float64Array(maxSlots);

    function addHead(token: number, head: number, sequence: number): void {
      const kvHead = Math.floor(head / groupSize);
      const contextLength = cache.contextLength(sequence);
      for (let j = 0; j < contextLength; j++) {
        const slot = cache.physicalSlot(sequence, j);
        logits[j] = -Infinity;
        if (!isVisible(positions.data[token], cache.position(slot))) continue;
        cache.readKey(slot, kvHead, key);
        logits[j] = logit((token * numHeads + head) * headDim, key);
      }
      softmaxRow(logits, 0, contextLength, logits);
      for (let j = 0; j < contextLength; j++) sums[j] += logits[j];
    }

    return () => {
      const numTokens = q.shape[0];
      for (let sequence = 0; sequence < contextLengths.shape[0]; sequence++) {
        for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
          sums.fill(0);
          for (let t = 0; t < numTokens; t++) {
            if (sequences.data[t] !== sequence) continue;
            for (let g = 0; g < groupSize; g++) addHead(t, kvHead * groupSize + g, sequence);
          }
          const begin = (sequence * numKvHeads + kvHead) * maxSlots;
          for (let j = 0; j < maxSlots; j++) {
            mass.data[begin + j] = (previous === undefined ? 0 : previous.data[begin + j]) + sums[j];
          }
        }
      }
    };
  },
  flops: attentionFlops,
  bytes: attentionBytes,
};
