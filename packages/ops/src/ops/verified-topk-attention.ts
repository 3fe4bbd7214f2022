import { ArgumentError } from '@winnow/tensor';
import { bindKeyMass, massAttribute, massOutput, type KeyMass } from '../attention/key-mass.js';
import { attentionAxes, kvReader, type KvReader } from '../attention/kv-reader.js';
import { PageSampling } from '../attention/page-sampling.js';
import { SeenPages } from '../attention/page-selection.js';
import { attentionFixedAxes, attentionInputs, bindLogit, maxSlotsOf, type Logit } from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention } from '../attention/visibility.js';
import { sampleLevel, sampleStream } from '../numerics/position-hash.js';
import { SoftmaxSum } from '../numerics/softmax-sum.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec, ReferenceCall } from '../spec/op-spec.js';
import { attentionBytes, attentionFlops } from './attention-partial.js';
import { checkSummaries } from './block-mean-append.js';
import { checkCausal, checkCounts } from './streaming-attention.js';

/**
 * Attention to heavy keys and to a random sample of the others, as large as the relative error `epsilon` of the output
 * needs. Per KV head:
 * 1. read as a whole are pages with a visible position below `sinks` or among the last `local` ones, pages whose box does not
 *    cover all their slots, and the `budget` pages nearest to the largest bound of their logits (bounds as in
 *    `page-topk-attention`, the nearest of the group's query heads, ties by lower page);
 * 2. a key of another page is drawn with the probability `p = 2^-e`: e is `floor(d / (2 ln 2))`, at most 20, for a bound d
 *    below the largest one, plus a constant by which the expected sample has from `sample` to less than `2 sample` keys.
 *    Drawn are the keys whose level is at least e, see `position-hash.ts`;
 * 3. `y = sum(exp(s) / p v) / sum(exp(s) / p)` over the keys read, with p = 1 for those of step 1, and its relative
 *    error is estimated as `r = quantile sqrt(V) / |y|`, where `V = sum((1 - p) (exp(s) / p)^2 |v - y|^2) /
 *    sum(exp(s) / p)^2` is the variance of a ratio of sums over a Poisson sample;
 * 4. while r is above epsilon for a query head of the group, or fewer than two keys were drawn, e falls by 1, which about
 *    doubles the sample. Once it has half of the keys of step 2, it gets all.
 *
 * With `quantile` the normal quantile of `1 - delta / 2`, the error is at most epsilon with a probability of about `1 -
 * delta`: exactly for a normal error along one direction, and more in several directions, which average. The last sample
 * is chosen by its variance, not by its error, so that looking at several samples costs nothing but the error of V.
 *
 * Shapes: as in `attention`; boxCounts `[C, G, K]`, keyMin, keyMax `[C, G, K, H]` of `block-box-append`; errorEstimate
 * `[T, N]`: r, 0 if all visible keys were read; pairs `[T, K]` i32: keys of each query head; mass: see `key-mass.ts`,
 * with exp(s) / p for exp(s). Causal only.
 * Numerics: the sample depends on `seed`, positions and the KV head only.
 * Source: arXiv:2510.05688, which draws uniformly and with replacement and derives the sample from a first one. Ratio
 * estimates of Poisson samples: Sarndal, Swensson and Wretman, Model Assisted Survey Sampling (1992), section 7.3. One
 * direction is the worst case: Szekely and Bakirov, Extremal probabilities for Gaussian quadratic forms (2003).
 */
export const verifiedTopKAttention: OpSpec = {
  name: 'verified-topk-attention',
  inputs: {
    ...attentionInputs,
    boxCounts: { dtypes: i32Only, shape: 'C G K' },
    keyMin: { dtypes: f32Only, shape: 'C G K H' },
    keyMax: { dtypes: f32Only, shape: 'C G K H' },
  },
  outputs: {
    y: { dtypes: f32Only, shape: 'T N D' },
    errorEstimate: { dtypes: f32Only, shape: 'T N' },
    pairs: { dtypes: i32Only, shape: 'T K' },
    mass: massOutput,
  },
  axes: { ...attentionAxes, G: 'numParts' },
  attributes: {
    ...attentionAttributes,
    budget: { kind: 'number', integer: true, default: 0 },
    epsilon: { kind: 'number' },
    sinks: { kind: 'number', integer: true, default: 0 },
    local: { kind: 'number', integer: true, default: 1 },
    mass: massAttribute,
    quantile: { kind: 'number' },
    sample: { kind: 'number', integer: true, default: 64 },
    seed: { kind: 'number', integer: true, default: 0 },
  },
  fixedAxes: attentionFixedAxes,
  partition: 'heads',
  work: '0.25 * q.numElements * blockTable.maxBlocks * keys.blockSize',
  check(shapes, attributes) {
    const op = 'verified-topk-attention';
    checkAttention(op, shapes, attributes);
    checkCausal(op, attributes);
    checkCounts(op, attributes, { budget: 0, sinks: 0, local: 1, sample: 1 });
    checkPositive(op, attributes['epsilon'] as number, 'epsilon');
    checkPositive(op, attributes['quantile'] as number, 'quantile');
    checkSummaries(op, Number(shapes['keys'][2]), Number(shapes['keyMin'][1]));
  },
  bindReference(call) {
    const reference = new VerifiedTopKReference(call);
    return () => reference.run();
  },
  flops: attentionFlops,
  bytes: attentionBytes,
};

function checkPositive(op: string, value: number, name: string): void {
  if (value > 0) return;
  throw new ArgumentError({ argument: `${op}: ${name}`, expected: 'more than 0', actual: String(value) });
}

/** Steps 1 to 4, one KV head after the other. */
class VerifiedTopKReference {
  readonly #call: ReferenceCall;
  readonly #cache: KvReader;
  readonly #groupSize: number;
  readonly #keyMass: KeyMass | undefined;
  readonly #logit: Logit;
  readonly #pageSize: number;
  readonly #seen: SeenPages;
  readonly #sampling: PageSampling;
  readonly #slots: Int32Array;
  readonly #sums: readonly SoftmaxSum[];
  readonly #key: Float32Array;
  readonly #value: Float32Array;
  // the visible keys: logical slot, exponent of their probability, and level, which is at least the exponent of drawn keys
  readonly #keySlots: Int32Array;
  readonly #exponents: Int32Array;
  readonly #levels: Int32Array;
  #numVisible = 0;

  constructor(call: ReferenceCall) {
    const { inputs, outputs, attributes } = call;
    const { q, keys, blockTable, keyMin } = inputs;
    this.#call = call;
    this.#cache = kvReader(inputs);
    const { headDim, valueDim, numKvHeads } = this.#cache;
    const groupSize = q.shape[1] / numKvHeads;
    const maxSlots = maxSlotsOf(blockTable.shape, keys.shape);
    this.#groupSize = groupSize;
    this.#pageSize = keys.shape[2] / keyMin.shape[1];
    this.#keyMass = bindKeyMass(outputs['mass'], groupSize);
    this.#logit = bindLogit(q.data as Float32Array, this.#cache, attributes);
    const maxPages = maxSlots / this.#pageSize;
    this.#seen = new SeenPages(maxPages, attributes);
    this.#sampling = new PageSampling({ maxPages, groupSize, headDim }, attributes);
    this.#slots = new Int32Array(this.#pageSize);
    this.#sums = Array.from({ length: groupSize }, () => new SoftmaxSum(valueDim));
    this.#key = new Float32Array(headDim);
    this.#value = new Float32Array(valueDim);
    this.#keySlots = new Int32Array(maxSlots);
    this.#exponents = new Int32Array(maxSlots);
    this.#levels = new Int32Array(maxSlots);
  }

  run(): void {
    const numTokens = this.#call.inputs['q'].shape[0];
    for (let t = 0; t < numTokens; t++) {
      for (let kvHead = 0; kvHead < this.#cache.numKvHeads; kvHead++) this.#attendGroup(t, kvHead);
    }
  }

  #attendGroup(t: number, kvHead: number): void {
    const { q } = this.#call.inputs;
    const { numKvHeads, headDim } = this.#cache;
    const firstRow = t * q.shape[1] + kvHead * this.#groupSize;
    this.#sampling.begin(q.data as Float32Array, firstRow * headDim);
    const numPages = this.#addPages(t, kvHead);
    this.#sampling.close();
    const numRandom = this.#listKeys(t, kvHead, numPages);
    let numRead = this.#attend(t, kvHead);
    let isComplete = numRandom === 0;
    while (!isComplete) {
      const numDrawn = numRead - (this.#numVisible - numRandom);
      if (numDrawn > 1 && this.#isGoodEnough(t, kvHead)) break;
      isComplete = 2 * numDrawn >= numRandom;
      for (let i = 0; i < this.#numVisible; i++) this.#exponents[i] = isComplete ? 0 : this.#exponents[i] - 1;
      numRead = this.#attend(t, kvHead);
    }
    this.#finish(t, kvHead, firstRow);
    this.#call.outputs['pairs'].data[t * numKvHeads + kvHead] = numRead;
  }

  /** Passes the pages that are not fixed to the sampling and returns the number of all pages. */
  #addPages(t: number, kvHead: number): number {
    const { positions, sequences, boxCounts, keyMin, keyMax } = this.#call.inputs;
    const sequence = sequences.data[t];
    const contextLength = this.#cache.contextLength(sequence);
    const numPages = Math.ceil(contextLength / this.#pageSize);
    for (let page = 0; page < numPages; page++) {
      const begin = page * this.#pageSize;
      const end = Math.min(contextLength, begin + this.#pageSize);
      this.#slots.fill(-1);
      for (let j = begin; j < end; j++) {
        this.#slots[j - begin] = this.#cache.position(this.#cache.physicalSlot(sequence, j));
      }
      this.#seen.add(page, positions.data[t], this.#slots);
      const summary = this.#cache.summaryRow(sequence, page, keyMin.shape[1], kvHead);
      const isWhole = boxCounts.data[summary] === this.#pageSize;
      if (this.#seen.numSeen[page] === 0 || this.#seen.isFixed(page) || !isWhole) continue;
      const at = summary * this.#cache.headDim;
      const corners = { keyMin: keyMin.data, minBegin: at, keyMax: keyMax.data, maxBegin: at };
      this.#sampling.add(page, this.#seen.numSeen[page], { count: this.#pageSize, ...corners });
    }
    return numPages;
  }

  /** Lists the visible keys and returns the number of those that may be left out. */
  #listKeys(t: number, kvHead: number, numPages: number): number {
    const { positions, sequences } = this.#call.inputs;
    const sequence = sequences.data[t];
    const stream = sampleStream(this.#call.attributes['seed'] as number, positions.data[t], kvHead);
    let numRandom = 0;
    this.#numVisible = 0;
    for (let page = 0; page < numPages; page++) {
      if (this.#seen.numSeen[page] === 0) continue;
      const exponent = this.#sampling.exponentOf(page);
      const end = Math.min(this.#cache.contextLength(sequence), (page + 1) * this.#pageSize);
      for (let j = page * this.#pageSize; j < end; j++) {
        const position = this.#cache.position(this.#cache.physicalSlot(sequence, j));
        if (!this.#seen.isVisible(positions.data[t], position)) continue;
        this.#keySlots[this.#numVisible] = j;
        this.#exponents[this.#numVisible] = exponent;
        this.#levels[this.#numVisible] = sampleLevel(stream, position);
        this.#numVisible += 1;
        if (exponent > 0) numRandom += 1;
      }
    }
    return numRandom;
  }

  /** Attends to the keys that are drawn and returns their number. */
  #attend(t: number, kvHead: number): number {
    const groupSize = this.#groupSize;
    const row = t * this.#call.inputs['q'].shape[1] + kvHead * groupSize;
    let numRead = 0;
    for (const sum of this.#sums) sum.clear();
    for (let i = 0; i < this.#numVisible; i++) {
      if (!this.#readDrawn(i, t, kvHead)) continue;
      const bias = Math.max(0, this.#exponents[i]) * Math.LN2;
      for (let g = 0; g < groupSize; g++) {
        this.#sums[g].add(this.#logit((row + g) * this.#cache.headDim, this.#key) + bias, this.#value);
      }
      numRead += 1;
    }
    return numRead;
  }

  #isGoodEnough(t: number, kvHead: number): boolean {
    const epsilon = this.#call.attributes['epsilon'] as number;
    for (let g = 0; g < this.#groupSize; g++) if (!(this.#relativeError(t, kvHead, g) <= epsilon)) return false;
    return true;
  }

  /** r of step 3. */
  #relativeError(t: number, kvHead: number, g: number): number {
    const { headDim, valueDim } = this.#cache;
    const row = t * this.#call.inputs['q'].shape[1] + kvHead * this.#groupSize + g;
    const sum = this.#sums[g];
    let variance = 0;
    for (let i = 0; i < this.#numVisible; i++) {
      const exponent = this.#exponents[i];
      if (exponent <= 0 || !this.#readDrawn(i, t, kvHead)) continue;
      const weight = Math.exp(this.#logit(row * headDim, this.#key) + exponent * Math.LN2 - sum.max) / sum.sum;
      let distance = 0;
      for (let d = 0; d < valueDim; d++) distance += (this.#value[d] - sum.mean(d)) ** 2;
      variance += (1 - 2 ** -exponent) * weight * weight * distance;
    }
    if (variance === 0) return 0;
    let squares = 0;
    for (let d = 0; d < valueDim; d++) squares += sum.mean(d) ** 2;
    return (this.#call.attributes['quantile'] as number) * Math.sqrt(variance / squares);
  }

  /** Reads the key and value of visible key `i` if it is drawn. */
  #readDrawn(i: number, t: number, kvHead: number): boolean {
    if (this.#levels[i] < this.#exponents[i]) return false;
    const slot = this.#cache.physicalSlot(this.#call.inputs['sequences'].data[t], this.#keySlots[i]);
    this.#cache.readKey(slot, kvHead, this.#key);
    this.#cache.readValue(slot, kvHead, this.#value);
    return true;
  }

  #finish(t: number, kvHead: number, firstRow: number): void {
    const { y, errorEstimate } = this.#call.outputs;
    const { headDim, valueDim } = this.#cache;
    for (let g = 0; g < this.#groupSize; g++) {
      const row = firstRow + g;
      this.#sums[g].finish(y.data as Float32Array, row * valueDim);
      errorEstimate.data[row] = this.#relativeError(t, kvHead, g);
      for (let i = 0; this.#keyMass !== undefined && i < this.#numVisible; i++) {
        if (!this.#readDrawn(i, t, kvHead)) continue;
        const bias = Math.max(0, this.#exponents[i]) * Math.LN2;
        this.#keyMass.visit(g, this.#keySlots[i], this.#logit(row * headDim, this.#key) + bias);
      }
      this.#keyMass?.finish(g, this.#sums[g]);
    }
    this.#keyMass?.write(t, kvHead);
  }
}
