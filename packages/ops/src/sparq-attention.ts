import { ArgumentError } from '@winnow/tensor';
import { attentionAttributes, checkAttention, visibility } from './attention-visibility.js';
import { checkSummaries } from './block-mean-append.js';
import { f32Only, i32Only } from './dtypes.js';
import { columnDTypes } from './key-columns-append.js';
import { bindKeyMass, massAttribute, massOutput } from './key-mass.js';
import { attentionAxes, kvReader } from './kv-view.js';
import type { OpSpec } from './op-spec.js';
import { attentionFixedAxes, attentionInputs, bindCap, bindLogit, chooseLargest, maxSlotsOf } from './sparse-inputs.js';
import { rowReader } from './row-access.js';
import { SoftmaxSum } from './softmax-sum.js';
import { checkCausal, checkCounts } from './streaming-attention.js';

/**
 * SparQ attention. For the query heads of one KV head (with `grouped`; otherwise for each query head alone):
 * 1. the `rank` components with the largest `sum |q|`; approximate logits from these alone, divided by
 *    `sqrt(sum |q chosen| / sum |q|)` with `temperature`, and their softmax over all keys that are seen;
 * 2. the last `local` positions and those of the largest sums of approximate weights, `topK` keys in all; exact attention
 *    over them gives z;
 * 3. `y = alpha z + (1 - alpha) mean(v)` with `meanValue`, alpha being the approximate weight of the chosen keys and the mean
 *    that of the values of all keys that are seen; otherwise `y = z`.
 * Where no more than `topK` keys are seen it is dense attention, with alpha 1. Of equals the lower component or slot wins.
 *
 * Shapes: as in `attention`; columns `[C, K, H, S]` of `key-columns-append`, read for the logits of step 1 when given;
 * valueMeans `[C, G, K, D]` and meanCounts `[C, G, K]` of `block-mean-append`, so that the mean needs one row per block (a block
 * whose count is not its size is summed from the cache). alpha `[T, N]`; pairs `[T]` i32: keys of each query head;
 * mass: see `key-mass.ts`, the probabilities that give z. Causal only.
 * Cost: `S r + 2 k d` instead of `2 S d` elements per KV head. Source: arXiv:2312.04985 algorithm 1.
 */
export const sparqAttention: OpSpec = {
  name: 'sparq-attention',
  inputs: {
    ...attentionInputs,
    columns: { dtypes: columnDTypes, shape: 'C K H S', optional: true },
    valueMeans: { dtypes: f32Only, shape: 'C G K D', optional: true },
    meanCounts: { dtypes: i32Only, shape: 'C G K', optional: true },
  },
  outputs: {
    y: { dtypes: f32Only, shape: 'T N D' },
    alpha: { dtypes: f32Only, shape: 'T N' },
    pairs: { dtypes: i32Only, shape: 'T' },
    mass: massOutput,
  },
  axes: { ...attentionAxes, G: 'numParts' },
  attributes: {
    ...attentionAttributes,
    rank: { kind: 'number', integer: true },
    topK: { kind: 'number', integer: true },
    local: { kind: 'number', integer: true, default: 0 },
    meanValue: { kind: 'boolean', default: true },
    temperature: { kind: 'boolean', default: true },
    grouped: { kind: 'boolean', default: true },
    mass: massAttribute,
  },
  fixedAxes: attentionFixedAxes,
  partition: 'heads',
  work: '0.25 * q.numElements * blockTable.maxBlocks * keys.blockSize',
  check(shapes, attributes) {
    const op = 'sparq-attention';
    checkAttention(op, shapes, attributes);
    checkCausal(op, attributes);
    checkCounts(op, attributes, { rank: 1, topK: 1, local: 0 });
    const { topK, local } = attributes;
    if (Number(local) > Number(topK)) {
      throw new ArgumentError({ argument: `${op}: local`, expected: `at most topK = ${topK}`, actual: String(local) });
    }
    const { keys, valueMeans, meanCounts } = shapes;
    if ((valueMeans === undefined) !== (meanCounts === undefined)) {
      throw new ArgumentError({ argument: `${op}: valueMeans, meanCounts`, expected: 'both or none', actual: 'one' });
    }
    if (valueMeans !== undefined) checkSummaries(op, Number(keys[2]), Number(valueMeans[1]));
  },
  bindReference({ inputs, outputs: { y, alpha, pairs, mass }, attributes }) {
    const { q, positions, sequences, blockTable, keys, columns } = inputs;
    const cache = kvReader(inputs);
    const { headDim, valueDim, numKvHeads } = cache;
    const numHeads = q.shape[1];
    const qs = q.data as Float32Array;
    const groupSize = attributes['grouped'] === true ? numHeads / numKvHeads : 1;
    const headsPerKv = numHeads / numKvHeads;
    const keyMass = bindKeyMass(mass, headsPerKv);
    const rank = Math.min(attributes['rank'] as number, headDim);
    const topK = attributes['topK'] as number;
    const local = attributes['local'] as number;
    const scale = attributes['scale'] as number;
    const cap = bindCap(attributes);
    const logit = bindLogit(qs, cache, attributes);
    const isVisible = visibility(attributes);
    const sum = new SoftmaxSum(valueDim);
    const key = new Float32Array(headDim);
    const value = new Float32Array(valueDim);
    const readComponent = columns === undefined ? undefined : rowReader(columns);
    const blockSize = keys.shape[2];
    const maxSlots = maxSlotsOf(blockTable.shape, keys.shape);
    const slots = new Int32Array(maxSlots);
    const logicalSlots = new Int32Array(maxSlots);
    const weights = new Float64Array(groupSize * maxSlots);
    const totals = new Float64Array(maxSlots);
    const chosen = new Uint8Array(maxSlots);
    const magnitudes = new Float64Array(headDim);
    const isComponent = new Uint8Array(headDim);
    const mean = new Float64Array(valueDim);

    /** The stored components of a key that the approximate logits use; zeros elsewhere. */
    const readApproximate = (slot: number, kvHead: number): void => {
      if (readComponent === undefined) cache.readKey(slot, kvHead, key);
      const first = (Math.floor(slot / blockSize) * numKvHeads + kvHead) * headDim;
      for (let i = 0; i < headDim; i++) {
        if (isComponent[i] === 0) key[i] = 0;
        else readComponent?.((first + i) * blockSize + (slot % blockSize), 1, key, i);
      }
    };
    const temperatureOf = (queryBegin: number): number => {
      if (attributes['temperature'] !== true) return 1;
      let all = 0;
      let kept = 0;
      for (let i = 0; i < headDim; i++) {
        all += Math.abs(qs[queryBegin + i]);
        kept += isComponent[i] * Math.abs(qs[queryBegin + i]);
      }
      return kept === 0 ? 1 : Math.sqrt(all / kept);
    };
    const approximate = (t: number, firstHead: number, kvHead: number, numVisible: number): void => {
      const firstQuery = (t * numHeads + firstHead) * headDim;
      magnitudes.fill(0);
      for (let i = 0; i < groupSize * headDim; i++) magnitudes[i % headDim] += Math.abs(qs[firstQuery + i]);
      chooseLargest(magnitudes, headDim, rank, isComponent);
      totals.fill(0, 0, numVisible);
      for (let g = 0; g < groupSize; g++) {
        const queryBegin = firstQuery + g * headDim;
        const factor = scale * temperatureOf(queryBegin);
        let max = -Infinity;
        for (let i = 0; i < numVisible; i++) {
          readApproximate(slots[i], kvHead);
          let product = 0;
          for (let h = 0; h < headDim; h++) product += qs[queryBegin + h] * key[h];
          weights[g * maxSlots + i] = cap(factor * product);
          max = Math.max(max, weights[g * maxSlots + i]);
        }
        let denominator = 0;
        for (let i = 0; i < numVisible; i++) {
          weights[g * maxSlots + i] = Math.exp(weights[g * maxSlots + i] - max);
          denominator += weights[g * maxSlots + i];
        }
        for (let i = 0; i < numVisible; i++) {
          weights[g * maxSlots + i] /= denominator;
          totals[i] += weights[g * maxSlots + i];
        }
      }
    };

    return () => {
      for (let t = 0; t < q.shape[0]; t++) {
        const sequence = sequences.data[t];
        const position = positions.data[t];
        let numVisible = 0;
        for (let j = 0; j < cache.contextLength(sequence); j++) {
          const slot = cache.physicalSlot(sequence, j);
          if (!isVisible(position, cache.position(slot))) continue;
          logicalSlots[numVisible] = j;
          slots[numVisible++] = slot;
        }
        const isDense = numVisible <= topK;
        pairs.data[t] = Math.min(topK, numVisible);
        for (let firstHead = 0; firstHead < numHeads; firstHead += groupSize) {
          const kvHead = Math.floor((firstHead * numKvHeads) / numHeads);
          if (isDense) chosen.fill(1, 0, numVisible);
          else {
            approximate(t, firstHead, kvHead, numVisible);
            for (let i = 0; i < numVisible; i++) {
              if (position - cache.position(slots[i]) < local) totals[i] = Infinity;
            }
            chooseLargest(totals, numVisible, topK, chosen);
          }
          mean.fill(0);
          for (let i = 0; i < numVisible; i++) {
            cache.readValue(slots[i], kvHead, value);
            for (let d = 0; d < valueDim; d++) mean[d] += value[d] / numVisible;
          }
          for (let g = 0; g < groupSize; g++) {
            const row = t * numHeads + firstHead + g;
            let share = isDense ? 1 : 0;
            sum.clear();
            for (let i = 0; i < numVisible; i++) {
              if (chosen[i] === 0) continue;
              if (!isDense) share += weights[g * maxSlots + i];
              cache.readKey(slots[i], kvHead, key);
              cache.readValue(slots[i], kvHead, value);
              const score = logit(row * headDim, key);
              sum.add(score, value);
              keyMass?.visit(row % headsPerKv, logicalSlots[i], score);
            }
            keyMass?.finish(row % headsPerKv, sum);
            alpha.data[row] = Math.min(1, share);
            const kept = attributes['meanValue'] === true ? Math.min(1, share) : 1;
            for (let d = 0; d < valueDim; d++) y.data[row * valueDim + d] = kept * sum.mean(d) + (1 - kept) * mean[d];
          }
          if ((firstHead + groupSize) % headsPerKv === 0) keyMass?.write(t, kvHead);
        }
      }
    };
  },
  flops: ({ q, keys, y, blockTable }, { rank, topK }) =>
    2 * q[0] * q[1] * (blockTable[1] * keys[2] * Number(rank) + Number(topK) * (q[2] + y[2])),
  bytes: ({ q, keys, y, blockTable }, { rank, topK }) =>
    4 * q[0] * keys[1] * (blockTable[1] * keys[2] * Number(rank) + Number(topK) * (q[2] + y[2])),
};
