import { bindKeyMass, massAttribute, massOutput } from '../attention/key-mass.js';
import { attentionAxes, kvReader } from '../attention/kv-reader.js';
import {
  attentionFixedAxes,
  attentionInputs,
  bindLogit,
  chooseLargest,
  maxSlotsOf,
} from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention, visibility } from '../attention/visibility.js';
import { SoftmaxSum } from '../numerics/softmax-sum.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { attentionBytes, attentionFlops } from './attention-partial.js';
import { checkCounts } from './streaming-attention.js';

/**
 * Attention of each query head to the `k` keys with its largest logits, ties by lower slot. It computes every logit: an
 * upper bound for any selection of k keys, not a saving.
 *
 * Shapes: as in `attention`; pairs `[T]` i32: keys of each query head; mass: see `key-mass.ts`.
 */
export const oracleTopKAttention: OpSpec = {
  name: 'oracle-topk-attention',
  inputs: attentionInputs,
  outputs: {
    y: { dtypes: f32Only, shape: 'T N D' },
    pairs: { dtypes: i32Only, shape: 'T' },
    mass: massOutput,
  },
  axes: attentionAxes,
  attributes: { ...attentionAttributes, k: { kind: 'number', integer: true }, mass: massAttribute },
  fixedAxes: attentionFixedAxes,
  partition: 'heads',
  work: '0.25 * q.numElements * blockTable.maxBlocks * keys.blockSize',
  check(shapes, attributes) {
    checkAttention('oracle-topk-attention', shapes, attributes);
    checkCounts('oracle-topk-attention', attributes, { k: 1 });
  },
  bindReference({ inputs, outputs: { y, pairs, mass }, attributes }) {
    const { q, positions, sequences, blockTable, keys } = inputs;
    const cache = kvReader(inputs);
    const { headDim, valueDim, numKvHeads } = cache;
    const numHeads = q.shape[1];
    const groupSize = numHeads / numKvHeads;
    const keyMass = bindKeyMass(mass, groupSize);
    const logit = bindLogit(q.data as Float32Array, cache, attributes);
    const isVisible = visibility(attributes);
    const k = attributes['k'] as number;
    const sum = new SoftmaxSum(valueDim);
    const key = new Float32Array(headDim);
    const value = new Float32Array(valueDim);
    const maxSlots = maxSlotsOf(blockTable.shape, keys.shape);
    const logits = new Float64Array(maxSlots);
    const slots = new Int32Array(maxSlots);
    const logicalSlots = new Int32Array(maxSlots);
    const chosen = new Uint8Array(maxSlots);
    return () => {
      for (let t = 0; t < q.shape[0]; t++) {
        const sequence = sequences.data[t];
        const contextLength = cache.contextLength(sequence);
        for (let head = 0; head < numHeads; head++) {
          const kvHead = Math.floor(head / groupSize);
          let numVisible = 0;
          for (let j = 0; j < contextLength; j++) {
            const slot = cache.physicalSlot(sequence, j);
            if (!isVisible(positions.data[t], cache.position(slot))) continue;
            cache.readKey(slot, kvHead, key);
            slots[numVisible] = slot;
            logicalSlots[numVisible] = j;
            logits[numVisible++] = logit((t * numHeads + head) * headDim, key);
          }
          chooseLargest(logits, numVisible, k, chosen);
          sum.clear();
          for (let i = 0; i < numVisible; i++) {
            if (chosen[i] === 0) continue;
            cache.readValue(slots[i], kvHead, value);
            sum.add(logits[i], value);
            keyMass?.visit(head % groupSize, logicalSlots[i], logits[i]);
          }
          sum.finish(y.data as Float32Array, (t * numHeads + head) * valueDim);
          pairs.data[t] = Math.min(k, numVisible);
          keyMass?.finish(head % groupSize, sum);
          if ((head + 1) % groupSize === 0) keyMass?.write(t, kvHead);
        }
      }
    };
  },
  flops: attentionFlops,
  bytes: attentionBytes,
};
