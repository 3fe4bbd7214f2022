import { ArgumentError } from '@winnow/tensor';
import { bindKeyMass, massAttribute, massOutput } from '../attention/key-mass.js';
import { attentionAxes, kvReader } from '../attention/kv-reader.js';
import { attentionFixedAxes, attentionInputs, bindLogit, sinkLogitsInput } from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention, sinksAndWindow, visibility } from '../attention/visibility.js';
import { SoftmaxSum } from '../numerics/softmax-sum.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { Attributes, OpSpec } from '../spec/op-spec.js';
import { attentionBytes, attentionFlops } from './attention-partial.js';

/**
 * Attention to the last `local` positions, including the query's own, and to the first `sinks` positions. Sinks before
 * the window use `sinkQ`, the same query rotated for position `min(position, sinks + local - 1)`, so that stored keys
 * are unchanged; without `sinkQ` they use q. Masks use positions, so slots may be in any order, as in a ring.
 *
 * The learned sinks, `sinkLogits`, have nothing to do with the sinks among the positions.
 *
 * Shapes: as in `attention`; sinkQ `[T, N, H]`; pairs `[T]` i32: keys of each query head; mass: see `key-mass.ts`.
 * Causal only.
 * Source: arXiv:2309.17453.
 */
export const streamingAttention: OpSpec = {
  name: 'streaming-attention',
  inputs: {
    ...attentionInputs,
    sinkQ: { dtypes: f32Only, shape: 'T N H', optional: true },
    sinkLogits: sinkLogitsInput,
  },
  outputs: {
    y: { dtypes: f32Only, shape: 'T N D' },
    pairs: { dtypes: i32Only, shape: 'T' },
    mass: massOutput,
  },
  axes: attentionAxes,
  attributes: {
    ...attentionAttributes,
    local: { kind: 'number', integer: true },
    sinks: { kind: 'number', integer: true, default: 0 },
    mass: massAttribute,
  },
  fixedAxes: attentionFixedAxes,
  partition: 'heads',
  work: '0.25 * q.numElements * blockTable.maxBlocks * keys.blockSize',
  check(shapes, attributes) {
    checkAttention('streaming-attention', shapes, attributes);
    checkCausal('streaming-attention', attributes);
    checkCounts('streaming-attention', attributes, { local: 1, sinks: 0 });
  },
  bindReference({ inputs, outputs: { y, pairs, mass }, attributes }) {
    const { q, sinkQ = q, positions, sequences, sinkLogits } = inputs;
    const cache = kvReader(inputs);
    const { headDim, valueDim, numKvHeads } = cache;
    const numHeads = q.shape[1];
    const groupSize = numHeads / numKvHeads;
    const keyMass = bindKeyMass(mass, groupSize);
    const logit = bindLogit(q.data as Float32Array, cache, attributes);
    const sinkLogit = bindLogit(sinkQ.data as Float32Array, cache, attributes);
    const isVisible = visibility(attributes);
    const isKey = sinksAndWindow(attributes);
    const local = attributes['local'] as number;
    const sum = new SoftmaxSum(valueDim);
    const key = new Float32Array(headDim);
    const value = new Float32Array(valueDim);
    const zeros = new Float32Array(valueDim);
    return () => {
      for (let t = 0; t < q.shape[0]; t++) {
        const sequence = sequences.data[t];
        const position = positions.data[t];
        const contextLength = cache.contextLength(sequence);
        pairs.data[t] = 0;
        for (let head = 0; head < numHeads; head++) {
          const kvHead = Math.floor(head / groupSize);
          const queryBegin = (t * numHeads + head) * headDim;
          let numKeys = 0;
          sum.clear();
          sum.add(sinkLogits?.data[head] ?? -Infinity, zeros);
          for (let j = 0; j < contextLength; j++) {
            const slot = cache.physicalSlot(sequence, j);
            const keyPosition = cache.position(slot);
            if (!isVisible(position, keyPosition) || !isKey(position, keyPosition)) continue;
            cache.readKey(slot, kvHead, key);
            cache.readValue(slot, kvHead, value);
            const score = (position - keyPosition < local ? logit : sinkLogit)(queryBegin, key);
            sum.add(score, value);
            keyMass?.visit(head % groupSize, j, score);
            numKeys += 1;
          }
          sum.finish(y.data as Float32Array, (t * numHeads + head) * valueDim);
          pairs.data[t] = numKeys;
          keyMass?.finish(head % groupSize, sum);
          if ((head + 1) % groupSize === 0) keyMass?.write(t, kvHead);
        }
      }
    };
  },
  flops: attentionFlops,
  bytes: attentionBytes,
};

/** @throws {ArgumentError} for bidirectional attention, which the op does not support */
export function checkCausal(op: string, { causal }: Attributes): void {
  if (causal === true) return;
  throw new ArgumentError({ argument: `${op}: causal`, expected: 'true', actual: String(causal) });
}

/** @throws {ArgumentError} for numbers below their minimum */
export function checkCounts(op: string, attributes: Attributes, least: Readonly<Record<string, number>>): void {
  for (const [name, min] of Object.entries(least)) {
    if (Number(attributes[name]) >= min) continue;
    const actual = String(attributes[name]);
    throw new ArgumentError({ argument: `${op}: ${name}`, expected: `${min} or more`, actual });
  }
}
