import { attentionBytes, attentionFlops } from './attention-partial.js';
import { attentionAttributes, checkAttention, visibility } from './attention-visibility.js';
import { checkSummaries } from './block-mean-append.js';
import { f32Only, i32Only } from './dtypes.js';
import { bindKeyMass, massAttribute, massOutput } from './key-mass.js';
import { attentionAxes, kvReader } from './kv-view.js';
import type { Attributes, OpSpec } from './op-spec.js';
import { attentionFixedAxes, attentionInputs, bindCap, bindLogit, maxSlotsOf } from './sparse-inputs.js';
import { SoftmaxSum } from './softmax-sum.js';
import { checkCausal, checkCounts } from './streaming-attention.js';

/**
 * Attention to the pages (blocks of `S / G` logical slots) whose keys may matter most, with a certificate. Per KV head:
 * 1. pages that hold a seen position below `sinks` or among the last `local` ones, and pages whose box does not cover all
 *    their slots, are attended to;
 * 2. the others in order of the upper bound of their logits, `sum_i max(q_i min_i, q_i max_i)` scaled and capped, the largest
 *    over the query heads of the group (of equals the lower page), at most `budget` of them (-1: all). With `epsilon` above 0
 *    this ends as soon as the certificate is at most epsilon for every query head of the group;
 * 3. certificate: `S / (S + Z)` with Z the sum of `exp(s - m)` over the keys attended to and S the sum of `n exp(ub - m)` over
 *    the other pages, n being their seen keys: no less than the softmax mass that is missing, up to rounding.
 * errorBound is `certificate * (largest norm of a value in the other pages + norm of the kept output)`: no less than the
 * distance of the output from that of dense attention.
 *
 * Shapes: as in `attention`; boxCounts `[C, G, K]`, keyMin, keyMax `[C, G, K, H]`, valueNorms `[C, G, K]` of `block-box-append`;
 * certificate, errorBound `[T, N]`; pages, pairs `[T, K]` i32: pages attended to, and keys of each query head; mass: see
 * `key-mass.ts`. Causal only.
 * Sources: arXiv:2406.10774 for the bound, arXiv:2510.05688 for an error that users set.
 */
export const pageTopKAttention: OpSpec = {
  name: 'page-topk-attention',
  inputs: {
    ...attentionInputs,
    boxCounts: { dtypes: i32Only, shape: 'C G K' },
    keyMin: { dtypes: f32Only, shape: 'C G K H' },
    keyMax: { dtypes: f32Only, shape: 'C G K H' },
    valueNorms: { dtypes: f32Only, shape: 'C G K' },
  },
  outputs: {
    y: { dtypes: f32Only, shape: 'T N D' },
    certificate: { dtypes: f32Only, shape: 'T N' },
    errorBound: { dtypes: f32Only, shape: 'T N' },
    pages: { dtypes: i32Only, shape: 'T K' },
    pairs: { dtypes: i32Only, shape: 'T K' },
    mass: massOutput,
  },
  axes: { ...attentionAxes, G: 'numParts' },
  attributes: {
    ...attentionAttributes,
    budget: { kind: 'number', integer: true, default: -1 },
    epsilon: { kind: 'number', default: 0 },
    sinks: { kind: 'number', integer: true, default: 0 },
    local: { kind: 'number', integer: true, default: 1 },
    mass: massAttribute,
  },
  fixedAxes: attentionFixedAxes,
  partition: 'heads',
  work: '0.25 * q.numElements * blockTable.maxBlocks * keys.blockSize',
  check(shapes, attributes) {
    const op = 'page-topk-attention';
    checkAttention(op, shapes, attributes);
    checkCausal(op, attributes);
    checkCounts(op, attributes, { budget: -1, epsilon: 0, sinks: 0, local: 1 });
    checkSummaries(op, Number(shapes['keys'][2]), Number(shapes['keyMin'][1]));
  },
  bindReference({ inputs, outputs, attributes }) {
    const { q, positions, sequences, keys, blockTable, boxCounts, keyMin, keyMax, valueNorms } = inputs;
    const { y, certificate, errorBound, pages, pairs, mass } = outputs;
    const cache = kvReader(inputs);
    const { headDim, valueDim, numKvHeads } = cache;
    const numHeads = q.shape[1];
    const groupSize = numHeads / numKvHeads;
    const keyMass = bindKeyMass(mass, groupSize);
    const qs = q.data as Float32Array;
    const boxBounds = new BoxBounds(groupSize, headDim, attributes);
    const budget = attributes['budget'] as number;
    const epsilon = attributes['epsilon'] as number;
    const sinks = attributes['sinks'] as number;
    const local = attributes['local'] as number;
    const logit = bindLogit(qs, cache, attributes);
    const isVisible = visibility(attributes);
    const numParts = keyMin.shape[1];
    const pageSize = keys.shape[2] / numParts;
    const maxPages = maxSlotsOf(blockTable.shape, keys.shape) / pageSize;
    const maxBlocks = blockTable.shape[1];
    const sums = Array.from({ length: groupSize }, () => new SoftmaxSum(valueDim));
    const key = new Float32Array(headDim);
    const value = new Float32Array(valueDim);
    const numSeen = new Int32Array(maxPages); // of pages that are not attended to yet, else 0
    const bounds = new Float64Array(groupSize * maxPages);

    const summaryOf = (sequence: number, page: number, kvHead: number): number => {
      const block = blockTable.data[sequence * maxBlocks + Math.floor(page / numParts)];
      return (block * numParts + (page % numParts)) * numKvHeads + kvHead;
    };
    /** Attends to the seen keys of a page and returns how many they are. */
    const attend = (t: number, kvHead: number, page: number): number => {
      const sequence = sequences.data[t];
      const end = Math.min(cache.contextLength(sequence), (page + 1) * pageSize);
      let numKeys = 0;
      for (let j = page * pageSize; j < end; j++) {
        const slot = cache.physicalSlot(sequence, j);
        if (!isVisible(positions.data[t], cache.position(slot))) continue;
        cache.readKey(slot, kvHead, key);
        cache.readValue(slot, kvHead, value);
        for (let g = 0; g < groupSize; g++) {
          const score = logit((t * numHeads + kvHead * groupSize + g) * headDim, key);
          sums[g].add(score, value);
          keyMass?.visit(g, j, score);
        }
        numKeys += 1;
      }
      return numKeys;
    };
    const missing = (g: number, numPages: number): number => {
      let rest = 0;
      for (let page = 0; page < numPages; page++) {
        if (numSeen[page] > 0) rest += numSeen[page] * Math.exp(bounds[g * maxPages + page] - sums[g].max);
      }
      return missingShare(rest, sums[g].sum);
    };

    const attendGroup = (t: number, kvHead: number): void => {
      const sequence = sequences.data[t];
      const position = positions.data[t];
      const contextLength = cache.contextLength(sequence);
      const numPages = Math.ceil(contextLength / pageSize);
      const firstRow = t * numHeads + kvHead * groupSize;
      let numAttended = 0;
      let numKeys = 0;
      for (const sum of sums) sum.clear();
      boxBounds.setQueries(qs, firstRow * headDim);
      for (let page = 0; page < numPages; page++) {
        const summary = summaryOf(sequence, page, kvHead);
        const end = Math.min(contextLength, (page + 1) * pageSize);
        let isExact = boxCounts.data[summary] !== pageSize;
        numSeen[page] = 0;
        for (let j = page * pageSize; j < end; j++) {
          const keyPosition = cache.position(cache.physicalSlot(sequence, j));
          if (!isVisible(position, keyPosition)) continue;
          numSeen[page] += 1;
          if (keyPosition < sinks || position - keyPosition < local) isExact = true;
        }
        if (numSeen[page] === 0) continue;
        if (isExact) {
          numKeys += attend(t, kvHead, page);
          numAttended += 1;
          numSeen[page] = 0;
        } else {
          for (let g = 0; g < groupSize; g++) {
            bounds[g * maxPages + page] = boxBounds.of(
              g,
              keyMin.data,
              summary * headDim,
              keyMax.data,
              summary * headDim,
            );
          }
        }
      }
      const isGoodEnough = (): boolean => {
        if (epsilon === 0) return false;
        for (let g = 0; g < groupSize; g++) if (!(missing(g, numPages) <= epsilon)) return false;
        return true;
      };
      for (let left = budget === -1 ? numPages : budget; left > 0 && !isGoodEnough(); left--) {
        let best = -1;
        let bestBound = -Infinity;
        for (let page = 0; page < numPages; page++) {
          if (numSeen[page] === 0) continue;
          let bound = -Infinity;
          for (let g = 0; g < groupSize; g++) bound = Math.max(bound, bounds[g * maxPages + page]);
          if (best !== -1 && !(bound > bestBound)) continue;
          best = page;
          bestBound = bound;
        }
        if (best === -1) break;
        numKeys += attend(t, kvHead, best);
        numAttended += 1;
        numSeen[best] = 0;
      }
      let largestNorm = 0;
      for (let page = 0; page < numPages; page++) {
        if (numSeen[page] === 0) continue;
        largestNorm = Math.max(largestNorm, valueNorms.data[summaryOf(sequence, page, kvHead)]);
      }
      for (let g = 0; g < groupSize; g++) {
        const row = firstRow + g;
        let squares = 0;
        for (let d = 0; d < valueDim; d++) squares += sums[g].mean(d) ** 2;
        sums[g].finish(y.data as Float32Array, row * valueDim);
        keyMass?.finish(g, sums[g]);
        certificate.data[row] = missing(g, numPages);
        errorBound.data[row] = certificate.data[row] * (largestNorm + Math.sqrt(squares));
      }
      pages.data[t * numKvHeads + kvHead] = numAttended;
      pairs.data[t * numKvHeads + kvHead] = numKeys;
      keyMass?.write(t, kvHead);
    };
    return () => {
      for (let t = 0; t < q.shape[0]; t++) for (let kvHead = 0; kvHead < numKvHeads; kvHead++) attendGroup(t, kvHead);
    };
  },
  flops: attentionFlops,
  bytes: attentionBytes,
};

/** Upper bounds of the logits that a group of queries has with the keys in a box. Hosts that choose pages share them. */
export class BoxBounds {
  readonly #headDim: number;
  readonly #scale: number;
  readonly #cap: (logit: number) => number;
  readonly #queries: Float64Array; // [groupSize, headDim], scaled

  constructor(groupSize: number, headDim: number, attributes: Attributes) {
    this.#headDim = headDim;
    this.#scale = attributes['scale'] as number;
    this.#cap = bindCap(attributes);
    this.#queries = new Float64Array(groupSize * headDim);
  }

  /** The queries of the group `[groupSize, headDim]` at `begin`. */
  setQueries(queries: Float32Array, begin: number): void {
    for (let i = 0; i < this.#queries.length; i++) this.#queries[i] = queries[begin + i] * this.#scale;
  }

  /** `sum_i max(q_i min_i, q_i max_i)` of one query, capped; the box has its corners at `minBegin` and `maxBegin`. */
  of(query: number, keyMin: ArrayLike<number>, minBegin: number, keyMax: ArrayLike<number>, maxBegin: number): number {
    const begin = query * this.#headDim;
    let sum = 0;
    for (let i = 0; i < this.#headDim; i++) {
      const x = this.#queries[begin + i];
      sum += Math.max(x * keyMin[minBegin + i], x * keyMax[maxBegin + i]);
    }
    return this.#cap(sum);
  }
}

/** `rest / (rest + sum)`: the softmax mass that is missing at most when the weights left out sum up to `rest` at most. */
export function missingShare(rest: number, sum: number): number {
  return rest === 0 ? 0 : rest === Infinity ? 1 : rest / (rest + sum);
}
