import { bindKeyMass, massAttribute, massOutput, type KeyMass } from '../attention/key-mass.js';
import { attentionAxes, kvReader, type KvReader } from '../attention/kv-reader.js';
import { PageSelection, SeenPages } from '../attention/page-selection.js';
import {
  attentionFixedAxes,
  attentionInputs,
  bindLogit,
  maxSlotsOf,
  sinkLogitsInput,
  type Logit,
} from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention, visibility } from '../attention/visibility.js';
import { SoftmaxSum } from '../numerics/softmax-sum.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec, ReferenceCall } from '../spec/op-spec.js';
import { attentionBytes, attentionFlops } from './attention-partial.js';
import { checkSummaries } from './block-mean-append.js';
import { checkCausal, checkCounts } from './streaming-attention.js';

/**
 * Attention to the pages (blocks of `S / G` logical slots) with the largest bounds on their logits, with a certificate.
 * Per KV head:
 * 1. pages with a visible position below `sinks` or among the last `local` ones, and pages whose box does not cover all
 *    their slots, are always attended to;
 * 2. the others in order of the upper bound of their logits, `sum_i max(q_i min_i, q_i max_i)` scaled and capped, the
 *    largest over the query heads of the group (ties by lower page), at most `budget` of them (-1: all). With `epsilon`
 *    above 0 this ends as soon as the certificate is at most epsilon for every query head of the group;
 * 3. certificate: `S / (S + Z)` with Z the sum of `exp(s - m)` over the keys attended to, and the sink, and S the sum of `n exp(ub -
 *    m)` over the other pages, n being their visible keys: an upper bound on the missing softmax mass, up to rounding.
 *    errorBound is `certificate * (largest norm of a value in the other pages + norm of the kept output)`: an upper
 *    bound on the distance of the output from that of dense attention.
 *
 * Shapes: as in `attention`; boxCounts `[C, G, K]`, keyMin, keyMax `[C, G, K, H]`, valueNorms `[C, G, K]` of
 * `block-box-append`; certificate, errorBound `[T, N]`; pages, pairs `[T, K]` i32: pages attended to, and keys of each
 * query head; mass: see `key-mass.ts`. Causal only.
 * Sources: arXiv:2406.10774 for the bound, arXiv:2510.05688 for a user-defined error.
 */
export const pageTopKAttention: OpSpec = {
  name: 'page-topk-attention',
  inputs: {
    ...attentionInputs,
    boxCounts: { dtypes: i32Only, shape: 'C G K' },
    keyMin: { dtypes: f32Only, shape: 'C G K H' },
    keyMax: { dtypes: f32Only, shape: 'C G K H' },
    valueNorms: { dtypes: f32Only, shape: 'C G K' },
    sinkLogits: sinkLogitsInput,
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
  bindReference(call) {
    const reference = new PageTopKReference(call);
    return () => reference.run();
  },
  flops: attentionFlops,
  bytes: attentionBytes,
};

/** Steps 1 to 3, one KV head after the other. */
class PageTopKReference {
  readonly #call: ReferenceCall;
  readonly #cache: KvReader;
  readonly #groupSize: number;
  readonly #keyMass: KeyMass | undefined;
  readonly #logit: Logit;
  readonly #isVisible: ReturnType<typeof visibility>;
  readonly #pageSize: number;
  readonly #seen: SeenPages;
  readonly #selection: PageSelection;
  readonly #slots: Int32Array;
  readonly #sums: readonly SoftmaxSum[];
  readonly #key: Float32Array;
  readonly #value: Float32Array;
  readonly #zeros: Float32Array;
  #numAttended = 0;
  #numKeys = 0;

  constructor(call: ReferenceCall) {
    const { inputs, outputs, attributes } = call;
    const { q, keys, blockTable, keyMin } = inputs;
    this.#call = call;
    this.#cache = kvReader(inputs);
    const { headDim, valueDim, numKvHeads } = this.#cache;
    const groupSize = q.shape[1] / numKvHeads;
    const pageSize = keys.shape[2] / keyMin.shape[1];
    const maxPages = maxSlotsOf(blockTable.shape, keys.shape) / pageSize;
    this.#groupSize = groupSize;
    this.#keyMass = bindKeyMass(outputs['mass'], groupSize);
    this.#logit = bindLogit(q.data as Float32Array, this.#cache, attributes);
    this.#isVisible = visibility(attributes);
    this.#pageSize = pageSize;
    this.#seen = new SeenPages(maxPages, attributes);
    this.#selection = new PageSelection({ maxPages, pageSize, groupSize, headDim }, attributes);
    this.#slots = new Int32Array(pageSize);
    this.#sums = Array.from({ length: groupSize }, () => new SoftmaxSum(valueDim));
    this.#key = new Float32Array(headDim);
    this.#value = new Float32Array(valueDim);
    this.#zeros = new Float32Array(valueDim);
  }

  run(): void {
    const numTokens = this.#call.inputs['q'].shape[0];
    for (let t = 0; t < numTokens; t++) {
      for (let kvHead = 0; kvHead < this.#cache.numKvHeads; kvHead++) this.#attendGroup(t, kvHead);
    }
  }

  #attendGroup(t: number, kvHead: number): void {
    const { q, sequences, sinkLogits } = this.#call.inputs;
    const { pages, pairs } = this.#call.outputs;
    const { numKvHeads, headDim } = this.#cache;
    const numPages = Math.ceil(this.#cache.contextLength(sequences.data[t]) / this.#pageSize);
    const firstRow = t * q.shape[1] + kvHead * this.#groupSize;
    this.#numAttended = 0;
    this.#numKeys = 0;
    for (const [g, sum] of this.#sums.entries()) {
      sum.clear();
      sum.add(sinkLogits?.data[kvHead * this.#groupSize + g] ?? -Infinity, this.#zeros);
    }
    this.#selection.begin(q.data as Float32Array, firstRow * headDim);
    for (let page = 0; page < numPages; page++) {
      if (this.#isFixed(t, kvHead, page)) this.#attend(t, kvHead, page);
    }
    while (!this.#selection.isSpent && !this.#isGoodEnough()) this.#attend(t, kvHead, this.#selection.take());
    this.#finish(t, kvHead, firstRow);
    pages.data[t * numKvHeads + kvHead] = this.#numAttended;
    pairs.data[t * numKvHeads + kvHead] = this.#numKeys;
    this.#keyMass?.write(t, kvHead);
  }

  /** Whether step 1 takes a page. Other visible pages become candidates of step 2. */
  #isFixed(t: number, kvHead: number, page: number): boolean {
    const { positions, sequences, boxCounts, keyMin, keyMax } = this.#call.inputs;
    const sequence = sequences.data[t];
    const begin = page * this.#pageSize;
    const end = Math.min(this.#cache.contextLength(sequence), begin + this.#pageSize);
    this.#slots.fill(-1);
    for (let j = begin; j < end; j++) {
      this.#slots[j - begin] = this.#cache.position(this.#cache.physicalSlot(sequence, j));
    }
    this.#seen.add(page, positions.data[t], this.#slots);
    if (this.#seen.numSeen[page] === 0) return false;
    const summary = this.#cache.summaryRow(sequence, page, keyMin.shape[1], kvHead);
    const at = summary * this.#cache.headDim;
    const corners = { keyMin: keyMin.data, minBegin: at, keyMax: keyMax.data, maxBegin: at };
    return this.#selection.add(page, this.#seen, { count: boxCounts.data[summary], ...corners });
  }

  /** Attends to the visible keys of a page. */
  #attend(t: number, kvHead: number, page: number): void {
    const { q, positions, sequences } = this.#call.inputs;
    const { headDim } = this.#cache;
    const sequence = sequences.data[t];
    const firstRow = t * q.shape[1] + kvHead * this.#groupSize;
    const end = Math.min(this.#cache.contextLength(sequence), (page + 1) * this.#pageSize);
    for (let j = page * this.#pageSize; j < end; j++) {
      const slot = this.#cache.physicalSlot(sequence, j);
      if (!this.#isVisible(positions.data[t], this.#cache.position(slot))) continue;
      this.#cache.readKey(slot, kvHead, this.#key);
      this.#cache.readValue(slot, kvHead, this.#value);
      for (let g = 0; g < this.#groupSize; g++) {
        const score = this.#logit((firstRow + g) * headDim, this.#key);
        this.#sums[g].add(score, this.#value);
        this.#keyMass?.visit(g, j, score);
      }
      this.#numKeys += 1;
    }
    this.#numAttended += 1;
  }

  #isGoodEnough(): boolean {
    const epsilon = this.#call.attributes['epsilon'] as number;
    if (epsilon === 0) return false;
    for (let g = 0; g < this.#groupSize; g++) if (!(this.#missing(g) <= epsilon)) return false;
    return true;
  }

  /** The certificate of step 3. */
  #missing(g: number): number {
    const { max, sum } = this.#sums[g];
    return this.#selection.missing(g, max, sum);
  }

  #finish(t: number, kvHead: number, firstRow: number): void {
    const { sequences, keyMin, valueNorms } = this.#call.inputs;
    const { y, certificate, errorBound } = this.#call.outputs;
    const { valueDim } = this.#cache;
    let largestNorm = 0;
    for (const page of this.#selection.rest()) {
      const summary = this.#cache.summaryRow(sequences.data[t], page, keyMin.shape[1], kvHead);
      largestNorm = Math.max(largestNorm, valueNorms.data[summary]);
    }
    for (let g = 0; g < this.#groupSize; g++) {
      const row = firstRow + g;
      const sum = this.#sums[g];
      let squares = 0;
      for (let d = 0; d < valueDim; d++) squares += sum.mean(d) ** 2;
      sum.finish(y.data as Float32Array, row * valueDim);
      this.#keyMass?.finish(g, sum);
      certificate.data[row] = this.#missing(g);
      errorBound.data[row] = certificate.data[row] * (largestNorm + Math.sqrt(squares));
    }
  }
}
