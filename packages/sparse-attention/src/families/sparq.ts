/**
 * SparQ (arXiv:2312.04985): approximate logits from the few largest components of the query, exact attention over the
 * best tokens, and the mean of all values for the rest. For decode: one query, or a short speculative batch.
 */
import type { Tensor3 } from '@winnow/tensor';
import { checkAttend, familyShape, reportVisit } from '../core/family.js';
import type { AttendOptions, AttentionFamily, FamilyOptions, FamilyShape } from '../core/family.js';
import { GroupAttend } from '../core/group-attend.js';
import { KeyColumns } from '../core/key-columns.js';
import type { KvRows } from '../core/rows.js';
import { TopK } from '../core/top-k.js';
import type { SparqPolicy } from '../policy/policy-types.js';

/** Elements that one KV head reads and writes in one step. */
export interface SparqTransfers {
  /** By the formula `S r + 2 k d + 4 d`. */
  readonly formula: number;
  /** `2 S d`. */
  readonly dense: number;
  /** `dense / formula`: the speed-up that is possible where memory is the limit. */
  readonly possibleSpeedup: number;
}

/** The transfers of a step with `numTokens` tokens in the cache. `rank` and `topK` beyond what exists are cut. */
export function sparqTransfers(policy: SparqPolicy, numTokens: number, headDim: number): SparqTransfers {
  const rank = Math.min(policy.rank, headDim);
  const topK = Math.min(policy.topK, numTokens);
  const formula = numTokens * rank + 2 * topK * headDim + 4 * headDim;
  const dense = 2 * numTokens * headDim;
  return { formula, dense, possibleSpeedup: dense / formula };
}

/** Options of `SparqAttention`. */
export interface SparqOptions extends FamilyOptions {
  readonly policy: SparqPolicy;
  /** Keep the transposed copy of the keys as f16 (the cache holds f16 or less). */
  readonly halfColumns?: boolean | undefined;
}

/** All of SparQ: mean value, local window, temperature and grouped heads, each with a switch in the policy. */
export class SparqAttention implements AttentionFamily {
  readonly policy: SparqPolicy;
  readonly shape: FamilyShape;
  pairs = 0;
  /** Approximate mass of the chosen tokens, per query head of the last query. */
  readonly alpha: Float64Array;
  /** Elements read and written so far, counted where it happens. */
  transferredElements = 0;
  readonly #kv: KvRows;
  readonly #columns: KeyColumns | undefined;
  readonly #group: GroupAttend;
  readonly #topK = new TopK();
  readonly #components: Int32Array;
  readonly #chosen: Int32Array;
  readonly #magnitudes: Float64Array;
  readonly #valueSum: Float64Array; // [numKvHeads, valueDim], of the first #numSummed tokens
  #numSummed = 0;
  #scores = new Float64Array(0); // [groupSize, length]
  #total = new Float64Array(0); // [length]

  constructor(options: SparqOptions) {
    this.shape = familyShape(options);
    const { policy, kv, halfColumns = false } = options;
    const { groupSize, headDim, valueDim, numKvHeads, numHeads } = this.shape;
    this.policy = policy;
    this.#kv = kv;
    this.#columns = policy.keyLayout === 'both' ? new KeyColumns(kv.keys, halfColumns) : undefined;
    this.#group = new GroupAttend(policy.grouped ? groupSize : 1, headDim, valueDim);
    this.#components = new Int32Array(Math.min(policy.rank, headDim));
    this.#chosen = new Int32Array(policy.topK);
    this.#magnitudes = new Float64Array(headDim);
    this.#valueSum = new Float64Array(numKvHeads * valueDim);
    this.alpha = new Float64Array(numHeads);
    this.appended();
  }

  /** Bytes of the transposed copy. */
  get columnBytes(): number {
    return this.#columns?.sizeBytes ?? 0;
  }

  appended(): void {
    this.#columns?.append(this.#kv.length);
    if (this.policy.meanValue) this.#sumValues(this.#kv.length);
  }

  truncated(length: number): void {
    this.#columns?.truncate(length);
    if (this.policy.meanValue && this.#numSummed > length) this.#sumValues(length);
  }

  attend(q: Tensor3, begin: number, out: Tensor3, options: AttendOptions = {}): void {
    checkAttend(this.shape, this.#kv, q, begin, out, options);
    const { numHeads } = this.shape;
    const { groupSize } = this.#group;
    for (let t = 0; t < q.seqLen; t++) {
      if (this.policy.meanValue) this.#sumValues(begin + t + 1);
      for (let head = 0; head < numHeads; head += groupSize) this.#attendGroup(q, begin, t, head, out, options);
    }
    if (this.policy.meanValue) this.#sumValues(this.#kv.length);
  }

  #attendGroup(q: Tensor3, begin: number, t: number, head: number, out: Tensor3, options: AttendOptions): void {
    const { numHeads, numKvHeads, headDim, valueDim, scale } = this.shape;
    const { keys, values } = this.#kv;
    const { mass, visits, states } = options;
    const group = this.#group;
    const { groupSize } = group;
    const kvHead = Math.floor((head * numKvHeads) / numHeads);
    const length = begin + t + 1;
    const row = t * numHeads + head;
    group.begin(q.data, row * headDim, scale, mass !== undefined);
    const numChosen = this.#choose(kvHead, head, length);
    const chosen = this.#chosen;
    group.addAll(keys, values, chosen, numChosen, kvHead);
    this.transferredElements += numChosen * (headDim + valueDim) + 2 * (headDim + valueDim);
    group.finish(out.data, row * valueDim);
    if (states !== undefined) group.store(states, row); // of the chosen tokens; the mean value is no softmax state
    if (mass !== undefined) {
      const stride = options.massStride ?? Math.floor(mass.length / numKvHeads);
      group.addMass(mass, kvHead * stride, chosen, numChosen);
    }
    if (this.policy.meanValue && numChosen < length) this.#mixMean(out.data, row * valueDim, head, kvHead, length);
    this.pairs += numChosen * groupSize;
    reportVisit(visits, begin + t, head, groupSize, chosen, numChosen);
  }

  /** Steps 1 and 2: chooses tokens into `#chosen` and their approximate mass into `alpha`. */
  #choose(kvHead: number, head: number, length: number): number {
    const { policy, alpha } = this;
    const { groupSize } = this.#group;
    const chosen = this.#chosen;
    if (policy.topK >= length) {
      for (let j = 0; j < length; j++) chosen[j] = j;
      alpha.fill(1, head, head + groupSize);
      return length;
    }
    if (this.#total.length < length) {
      this.#total = new Float64Array(2 * length);
      this.#scores = new Float64Array(2 * length * groupSize);
    }
    const total = this.#total.fill(0, 0, length);
    const scores = this.#scores;
    this.#approximate(kvHead, length);
    for (let row = 0; row < groupSize; row++) {
      softmax(scores, row * length, length);
      for (let j = 0; j < length; j++) total[j] += scores[row * length + j];
    }
    const local = Math.min(policy.local, length);
    const count = this.#topK.select(total, length - local, policy.topK - local, chosen);
    for (let j = 0; j < local; j++) chosen[count + j] = length - local + j;
    for (let row = 0; row < groupSize; row++) {
      let sum = 0;
      for (let i = 0; i < count + local; i++) sum += scores[row * length + chosen[i]];
      alpha[head + row] = Math.min(1, sum);
    }
    return count + local;
  }

  /** Approximate logits `[groupSize, length]` from the largest components of the queries. */
  #approximate(kvHead: number, length: number): void {
    const { headDim } = this.shape;
    const { groupSize, query } = this.#group;
    const { keys } = this.#kv;
    const magnitudes = this.#magnitudes.fill(0);
    for (let i = 0; i < query.length; i++) magnitudes[i % headDim] += Math.abs(query[i]);
    const components = this.#components;
    const rank = this.#topK.select(magnitudes, headDim, components.length, components);
    const scores = this.#scores.fill(0, 0, groupSize * length);
    for (let row = 0; row < groupSize; row++) {
      const factor = this.policy.temperature ? this.#temperature(row, rank) : 1;
      if (this.#columns !== undefined) {
        const ofRow = scores.subarray(row * length, (row + 1) * length);
        for (let c = 0; c < rank; c++) {
          const component = components[c];
          this.#columns.addColumn(kvHead, component, factor * query[row * headDim + component], ofRow, length);
        }
        continue;
      }
      for (let j = 0; j < length; j++) {
        const from = keys.locate(j, kvHead);
        const { buffer } = keys;
        let sum = 0;
        for (let c = 0; c < rank; c++) {
          sum += factor * query[row * headDim + components[c]] * buffer[from + components[c]];
        }
        scores[row * length + j] = sum;
      }
    }
    this.transferredElements += length * rank;
  }

  /** The queries are scaled by `1 / sqrt(d)` already; what is left of the temperature is `sqrt(|q| / |q_r|)`. */
  #temperature(row: number, rank: number): number {
    const { headDim } = this.shape;
    const { query } = this.#group;
    let all = 0;
    for (let i = 0; i < headDim; i++) all += Math.abs(query[row * headDim + i]);
    let kept = 0;
    for (let c = 0; c < rank; c++) kept += Math.abs(query[row * headDim + this.#components[c]]);
    return kept === 0 ? 1 : Math.sqrt(all / kept);
  }

  /** Step 3: `alpha y + (1 - alpha) mean(v)`. */
  #mixMean(out: Float32Array, offset: number, head: number, kvHead: number, length: number): void {
    const { valueDim } = this.shape;
    for (let row = 0; row < this.#group.groupSize; row++) {
      const share = this.alpha[head + row];
      for (let i = 0; i < valueDim; i++) {
        const at = offset + row * valueDim + i;
        out[at] = share * out[at] + ((1 - share) * this.#valueSum[kvHead * valueDim + i]) / length;
      }
    }
  }

  /** Moves the sums to the first `length` tokens: f64 sums, so going back a few drafts leaves no visible trace. */
  #sumValues(length: number): void {
    const { numKvHeads, valueDim } = this.shape;
    const { values } = this.#kv;
    const sums = this.#valueSum;
    while (this.#numSummed !== length) {
      const sign = this.#numSummed < length ? 1 : -1;
      const position = sign === 1 ? this.#numSummed : this.#numSummed - 1;
      for (let head = 0; head < numKvHeads; head++) {
        const from = values.locate(position, head);
        for (let i = 0; i < valueDim; i++) sums[head * valueDim + i] += sign * values.buffer[from + i];
      }
      this.#numSummed += sign;
    }
  }
}

function softmax(scores: Float64Array, begin: number, length: number): void {
  let max = -Infinity;
  for (let j = begin; j < begin + length; j++) max = Math.max(max, scores[j]);
  let sum = 0;
  for (let j = begin; j < begin + length; j++) {
    scores[j] = Math.exp(scores[j] - max);
    sum += scores[j];
  }
  for (let j = begin; j < begin + length; j++) scores[j] /= sum;
}
