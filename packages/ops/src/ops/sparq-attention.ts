import { ArgumentError } from '@winnow/tensor';
import { bindKeyMass, massAttribute, massOutput, type KeyMass } from '../attention/key-mass.js';
import { attentionAxes, kvReader, type KvReader } from '../attention/kv-reader.js';
import {
  attentionFixedAxes,
  attentionInputs,
  bindCap,
  bindLogit,
  chooseLargest,
  maxSlotsOf,
  type Logit,
} from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention, visibility } from '../attention/visibility.js';
import { dotProduct } from '../numerics/dot-product.js';
import { rowReader, type RowReader } from '../numerics/row-access.js';
import { SoftmaxSum } from '../numerics/softmax-sum.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec, ReferenceCall } from '../spec/op-spec.js';
import { checkSummaries } from './block-mean-append.js';
import { columnDTypes } from './key-columns-append.js';
import { softmaxRow } from './softmax.js';
import { checkCausal, checkCounts } from './streaming-attention.js';

/**
 * SparQ attention. For the query heads of one KV head (with `grouped`; otherwise for each query head alone):
 * 1. the `rank` components with the largest `sum |q|`; approximate logits from these alone, divided by `sqrt(sum |q
 *    chosen| / sum |q|)` with `temperature`, and their softmax over all visible keys;
 * 2. the last `local` positions and those of the largest sums of approximate weights, `topK` keys in total; exact
 *    attention over them gives z;
 * 3. `y = alpha z + (1 - alpha) mean(v)` with `meanValue`, alpha being the approximate weight of the selected keys and
 *    the mean that of the values of all visible keys; otherwise `y = z`. With at most `topK` visible keys it is dense
 *    attention, with alpha 1. Ties go to the lower component or slot.
 *
 * Shapes: as in `attention`; columns `[C, K, H, S]` of `key-columns-append`, read for the logits of step 1 when given;
 * valueMeans `[C, G, K, D]` and meanCounts `[C, G, K]` of `block-mean-append`, so that the mean needs one row per block
 * (a block whose count is not its size is summed from the cache). alpha `[T, N]`; pairs `[T]` i32: keys of each query
 * head; mass: see `key-mass.ts`, the probabilities that give z. Causal only.
 * Cost: `S r + 2 k d` instead of `2 S d` elements per KV head.
 * Source: arXiv:2312.04985 algorithm 1.
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
  bindReference(call) {
    const reference = new SparqReference(call);
    return () => reference.run();
  },
  flops: ({ q, keys, y, blockTable }, { rank, topK }) =>
    2 * q[0] * q[1] * (blockTable[1] * keys[2] * Number(rank) + Number(topK) * (q[2] + y[2])),
  bytes: ({ q, keys, y, blockTable }, { rank, topK }) =>
    4 * q[0] * keys[1] * (blockTable[1] * keys[2] * Number(rank) + Number(topK) * (q[2] + y[2])),
};

/** Steps 1 to 3, for one token after the other. */
class SparqReference {
  readonly #call: ReferenceCall;
  readonly #cache: KvReader;
  readonly #groupSize: number;
  readonly #headsPerKv: number;
  readonly #keyMass: KeyMass | undefined;
  readonly #logit: Logit;
  readonly #cap: (logit: number) => number;
  readonly #isVisible: ReturnType<typeof visibility>;
  readonly #readComponent: RowReader | undefined;
  readonly #sum: SoftmaxSum;
  readonly #key: Float32Array;
  readonly #value: Float32Array;
  readonly #mean: Float64Array;
  readonly #magnitudes: Float64Array;
  readonly #isComponent: Uint8Array;
  /**
   * For the visible keys: physical and logical slot, approximate weights per query head, their sums, and the selection.
   */
  readonly #slots: Int32Array;
  readonly #logicalSlots: Int32Array;
  readonly #weights: Float64Array;
  readonly #totals: Float64Array;
  readonly #chosen: Uint8Array;

  constructor(call: ReferenceCall) {
    const { inputs, outputs, attributes } = call;
    const { q, blockTable, keys, columns } = inputs;
    this.#call = call;
    this.#cache = kvReader(inputs);
    const { headDim, valueDim, numKvHeads } = this.#cache;
    this.#headsPerKv = q.shape[1] / numKvHeads;
    this.#groupSize = attributes['grouped'] === true ? this.#headsPerKv : 1;
    this.#keyMass = bindKeyMass(outputs['mass'], this.#headsPerKv);
    this.#logit = bindLogit(q.data as Float32Array, this.#cache, attributes);
    this.#cap = bindCap(attributes);
    this.#isVisible = visibility(attributes);
    this.#readComponent = columns === undefined ? undefined : rowReader(columns);
    this.#sum = new SoftmaxSum(valueDim);
    this.#key = new Float32Array(headDim);
    this.#value = new Float32Array(valueDim);
    this.#mean = new Float64Array(valueDim);
    this.#magnitudes = new Float64Array(headDim);
    this.#isComponent = new Uint8Array(headDim);
    const maxSlots = maxSlotsOf(blockTable.shape, keys.shape);
    this.#slots = new Int32Array(maxSlots);
    this.#logicalSlots = new Int32Array(maxSlots);
    this.#weights = new Float64Array(this.#groupSize * maxSlots);
    this.#totals = new Float64Array(maxSlots);
    this.#chosen = new Uint8Array(maxSlots);
  }

  run(): void {
    const { q, positions, sequences } = this.#call.inputs;
    const topK = this.#call.attributes['topK'] as number;
    const numHeads = q.shape[1];
    for (let t = 0; t < q.shape[0]; t++) {
      const position = positions.data[t];
      const numVisible = this.#findVisible(sequences.data[t], position);
      const isDense = numVisible <= topK;
      this.#call.outputs['pairs'].data[t] = Math.min(topK, numVisible);
      for (let firstHead = 0; firstHead < numHeads; firstHead += this.#groupSize) {
        const kvHead = Math.floor((firstHead * this.#cache.numKvHeads) / numHeads);
        const firstRow = t * numHeads + firstHead;
        if (isDense) this.#chosen.fill(1, 0, numVisible);
        else this.#choose(firstRow, kvHead, position, numVisible);
        this.#averageValues(kvHead, numVisible);
        for (let g = 0; g < this.#groupSize; g++) this.#attend(firstRow, g, kvHead, numVisible, isDense);
        if ((firstHead + this.#groupSize) % this.#headsPerKv === 0) this.#keyMass?.write(t, kvHead);
      }
    }
  }

  #findVisible(sequence: number, position: number): number {
    let numVisible = 0;
    for (let j = 0; j < this.#cache.contextLength(sequence); j++) {
      const slot = this.#cache.physicalSlot(sequence, j);
      if (!this.#isVisible(position, this.#cache.position(slot))) continue;
      this.#logicalSlots[numVisible] = j;
      this.#slots[numVisible++] = slot;
    }
    return numVisible;
  }

  /** Steps 1 and 2. */
  #choose(firstRow: number, kvHead: number, position: number, numVisible: number): void {
    const { topK, local } = this.#call.attributes as Readonly<Record<string, number>>;
    this.#approximate(firstRow, kvHead, numVisible);
    for (let i = 0; i < numVisible; i++) {
      if (position - this.#cache.position(this.#slots[i]) < local) this.#totals[i] = Infinity;
    }
    chooseLargest(this.#totals, numVisible, topK, this.#chosen);
  }

  /** Approximate weights of the visible keys from the largest components of the queries. */
  #approximate(firstRow: number, kvHead: number, numVisible: number): void {
    const qs = this.#call.inputs['q'].data as Float32Array;
    const { headDim } = this.#cache;
    const rank = Math.min(this.#call.attributes['rank'] as number, headDim);
    const firstQuery = firstRow * headDim;
    this.#magnitudes.fill(0);
    for (let i = 0; i < this.#groupSize * headDim; i++) {
      this.#magnitudes[i % headDim] += Math.abs(qs[firstQuery + i]);
    }
    chooseLargest(this.#magnitudes, headDim, rank, this.#isComponent);
    this.#totals.fill(0, 0, numVisible);
    for (let g = 0; g < this.#groupSize; g++) this.#approximateHead(firstQuery + g * headDim, g, kvHead, numVisible);
  }

  #approximateHead(queryBegin: number, g: number, kvHead: number, numVisible: number): void {
    const qs = this.#call.inputs['q'].data as Float32Array;
    const weights = this.#weights.subarray(g * this.#totals.length, (g + 1) * this.#totals.length);
    const factor = (this.#call.attributes['scale'] as number) * this.#temperatureOf(queryBegin);
    for (let i = 0; i < numVisible; i++) {
      this.#readApproximate(this.#slots[i], kvHead);
      weights[i] = this.#cap(factor * dotProduct(qs, queryBegin, this.#key, 0, this.#cache.headDim));
    }
    softmaxRow(weights, 0, numVisible, weights);
    for (let i = 0; i < numVisible; i++) this.#totals[i] += weights[i];
  }

  /** The stored components of a key that the approximate logits use; zeros elsewhere. */
  #readApproximate(slot: number, kvHead: number): void {
    const { headDim, numKvHeads } = this.#cache;
    const blockSize = this.#call.inputs['keys'].shape[2];
    if (this.#readComponent === undefined) this.#cache.readKey(slot, kvHead, this.#key);
    const first = (Math.floor(slot / blockSize) * numKvHeads + kvHead) * headDim;
    for (let i = 0; i < headDim; i++) {
      if (this.#isComponent[i] === 0) this.#key[i] = 0;
      else this.#readComponent?.((first + i) * blockSize + (slot % blockSize), 1, this.#key, i);
    }
  }

  #temperatureOf(queryBegin: number): number {
    if (this.#call.attributes['temperature'] !== true) return 1;
    const qs = this.#call.inputs['q'].data as Float32Array;
    let all = 0;
    let kept = 0;
    for (let i = 0; i < this.#cache.headDim; i++) {
      all += Math.abs(qs[queryBegin + i]);
      kept += this.#isComponent[i] * Math.abs(qs[queryBegin + i]);
    }
    return kept === 0 ? 1 : Math.sqrt(all / kept);
  }

  #averageValues(kvHead: number, numVisible: number): void {
    this.#mean.fill(0);
    for (let i = 0; i < numVisible; i++) {
      this.#cache.readValue(this.#slots[i], kvHead, this.#value);
      for (let d = 0; d < this.#mean.length; d++) this.#mean[d] += this.#value[d] / numVisible;
    }
  }

  /** Step 3 of query head `g` of a group. */
  #attend(firstRow: number, g: number, kvHead: number, numVisible: number, isDense: boolean): void {
    const { y, alpha } = this.#call.outputs;
    const { headDim, valueDim } = this.#cache;
    const row = firstRow + g;
    const head = row % this.#headsPerKv;
    let share = isDense ? 1 : 0;
    this.#sum.clear();
    for (let i = 0; i < numVisible; i++) {
      if (this.#chosen[i] === 0) continue;
      if (!isDense) share += this.#weights[g * this.#totals.length + i];
      this.#cache.readKey(this.#slots[i], kvHead, this.#key);
      this.#cache.readValue(this.#slots[i], kvHead, this.#value);
      const score = this.#logit(row * headDim, this.#key);
      this.#sum.add(score, this.#value);
      this.#keyMass?.visit(head, this.#logicalSlots[i], score);
    }
    this.#keyMass?.finish(head, this.#sum);
    alpha.data[row] = Math.min(1, share);
    const kept = this.#call.attributes['meanValue'] === true ? Math.min(1, share) : 1;
    for (let d = 0; d < valueDim; d++) {
      y.data[row * valueDim + d] = kept * this.#sum.mean(d) + (1 - kept) * this.#mean[d];
    }
  }
}
