import { ArgumentError } from '@winnow/tensor';
import { bindKeyMass, massAttribute, massOutput, type KeyMass } from '../attention/key-mass.js';
import { attentionAxes, kvReader, type KvReader } from '../attention/kv-reader.js';
import { attentionFixedAxes, attentionInputs, bindLogit, type Logit } from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention, visibility } from '../attention/visibility.js';
import { SoftmaxSum } from '../numerics/softmax-sum.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { AttributeSpec, Attributes, OpSpec, RecordShapes, ReferenceCall } from '../spec/op-spec.js';
import { checkSummaries } from './block-mean-append.js';

/** Maximum number of global positions of a record. */
export const maxGlobals = 16;

/** Names of the attributes that hold global positions; -1 for none. */
export const globalAttributes: readonly string[] = Array.from({ length: maxGlobals }, (_, i) => `global${i}`);

/** How landmarks are selected; `outside-window` leaves out blocks whose tokens are all keys already. */
export const landmarkKinds: readonly string[] = ['off', 'compat', 'outside-window'];

/**
 * Attention of query position `i` to the tokens of a window, to global positions, to tokens at distances 1, 2, 4, ...
 * and to the means of blocks of earlier tokens (landmarks), all in one softmax: `O(W + log i)` keys.
 *
 * Tokens: `i - local ... i` (bidirectional: `... i + local`); the globals, not after `i` when causal; `i - 2^k`
 * (bidirectional: and `i + 2^k`). Landmarks in blocks of `S / G` tokens, causal: with `p = floor((i + 1) / (S / G)) -
 * 1` the blocks p, p - 1 and `p - 2^k`; bidirectional: with p the block of i the blocks `p +- 1` and `p +- 2^k`, never
 * p. Without `logStride` there are no distances `2^k`. A landmark's key and value are means, as maintained by
 * `block-mean-append`; `logCount` adds the logarithm of its number of tokens to its logit. A landmark whose
 * `meanCounts` is not its number of tokens is ignored.
 *
 * Logical slot `j` of a sequence holds position `j`; any other slot counts as empty. The model's own `window` masks
 * tokens, and landmarks that are not completely inside it.
 * Shapes: as in `attention`; keyMeans `[C, G, K, H]`, valueMeans `[C, G, K, D]`, meanCounts `[C, G, K]`, needed unless
 * landmarks are `off`. pairs `[T]` i32: keys of each query head; mass: see `key-mass.ts`, landmarks are not included.
 */
export const subquadraticAttention: OpSpec = {
  name: 'subquadratic-attention',
  inputs: {
    ...attentionInputs,
    keyMeans: { dtypes: f32Only, shape: 'C G K H', optional: true },
    valueMeans: { dtypes: f32Only, shape: 'C G K D', optional: true },
    meanCounts: { dtypes: i32Only, shape: 'C G K', optional: true },
  },
  outputs: {
    y: { dtypes: f32Only, shape: 'T N D' },
    pairs: { dtypes: i32Only, shape: 'T' },
    mass: massOutput,
  },
  axes: { ...attentionAxes, G: 'numParts' },
  attributes: {
    ...attentionAttributes,
    /** Number of tokens before the query (bidirectional: on both sides) that it attends to. */
    local: { kind: 'number', integer: true },
    logStride: { kind: 'boolean', default: true },
    landmarks: { kind: 'string', values: landmarkKinds, default: 'off' },
    logCount: { kind: 'boolean', default: false },
    ...Object.fromEntries(
      globalAttributes.map((name): [string, AttributeSpec] => [name, { kind: 'number', integer: true, default: -1 }]),
    ),
    mass: massAttribute,
  },
  fixedAxes: attentionFixedAxes,
  partition: 'heads',
  work: '0.5 * q.numElements * (attributes.local + 32)', // a window and some keys elsewhere
  check(shapes, attributes) {
    checkAttention('subquadratic-attention', shapes, attributes);
    const { local, landmarks } = attributes;
    if (Number(local) < 0) {
      const argument = 'subquadratic-attention: local';
      throw new ArgumentError({ argument, expected: '0 or more', actual: String(local) });
    }
    const { keys, keyMeans, valueMeans, meanCounts } = shapes;
    if (keyMeans !== undefined) checkSummaries('subquadratic-attention', Number(keys[2]), Number(keyMeans[1]));
    const isComplete = keyMeans !== undefined && valueMeans !== undefined && meanCounts !== undefined;
    if (landmarks !== 'off' && !isComplete) {
      const expected = 'given where landmarks are not off';
      throw new ArgumentError({ argument: 'keyMeans, valueMeans, meanCounts', expected, actual: 'nothing' });
    }
  },
  bindReference(call) {
    const reference = new SubquadraticReference(call);
    return () => reference.run();
  },
  flops: (shapes, attributes) => 2 * mostKeys(shapes, attributes) * shapes['q'][1] * (shapes['q'][2] + shapes['y'][2]),
  bytes: (shapes, attributes) =>
    4 * mostKeys(shapes, attributes) * shapes['keys'][1] * (shapes['q'][2] + shapes['y'][2]),
};

/** One query head after the other. */
class SubquadraticReference {
  readonly #call: ReferenceCall;
  readonly #cache: KvReader;
  readonly #groupSize: number;
  readonly #keyMass: KeyMass | undefined;
  readonly #logit: Logit;
  readonly #isVisible: ReturnType<typeof visibility>;
  readonly #isToken: ReturnType<typeof subquadraticTokenRule>;
  readonly #isLandmark: ReturnType<typeof subquadraticLandmarkRule>;
  /** Summaries per block of the cache, and slots per summary. */
  readonly #numParts: number;
  readonly #blockSize: number;
  readonly #sum: SoftmaxSum;
  readonly #key: Float32Array;
  readonly #value: Float32Array;

  constructor(call: ReferenceCall) {
    const { inputs, outputs, attributes } = call;
    const { q, keys, keyMeans } = inputs;
    this.#call = call;
    this.#cache = kvReader(inputs);
    const { headDim, valueDim, numKvHeads } = this.#cache;
    this.#groupSize = q.shape[1] / numKvHeads;
    this.#keyMass = bindKeyMass(outputs['mass'], this.#groupSize);
    this.#logit = bindLogit(q.data as Float32Array, this.#cache, attributes);
    this.#isVisible = visibility(attributes);
    this.#isToken = subquadraticTokenRule(attributes);
    this.#numParts = keyMeans === undefined ? 1 : keyMeans.shape[1];
    this.#blockSize = keys.shape[2] / this.#numParts;
    this.#isLandmark = subquadraticLandmarkRule(attributes, this.#blockSize, this.#isToken);
    this.#sum = new SoftmaxSum(valueDim);
    this.#key = new Float32Array(headDim);
    this.#value = new Float32Array(valueDim);
  }

  run(): void {
    const [numTokens, numHeads] = this.#call.inputs['q'].shape;
    const { y, pairs } = this.#call.outputs;
    for (let t = 0; t < numTokens; t++) {
      pairs.data[t] = 0;
      for (let head = 0; head < numHeads; head++) {
        this.#sum.clear();
        const numKeys = this.#addTokens(t, head) + this.#addLandmarks(t, head);
        this.#sum.finish(y.data as Float32Array, (t * numHeads + head) * this.#cache.valueDim);
        pairs.data[t] = numKeys;
        this.#keyMass?.finish(head % this.#groupSize, this.#sum);
        if ((head + 1) % this.#groupSize === 0) this.#keyMass?.write(t, Math.floor(head / this.#groupSize));
      }
    }
  }

  /** Adds the token keys of the rule, and returns their number. */
  #addTokens(t: number, head: number): number {
    const { q, positions, sequences } = this.#call.inputs;
    const [sequence, position] = [sequences.data[t], positions.data[t]];
    const kvHead = Math.floor(head / this.#groupSize);
    let numKeys = 0;
    for (let j = 0; j < this.#cache.contextLength(sequence); j++) {
      if (!this.#isToken(position, j) || !this.#isVisible(position, j)) continue;
      const slot = this.#cache.physicalSlot(sequence, j);
      if (this.#cache.position(slot) !== j) continue;
      this.#cache.readKey(slot, kvHead, this.#key);
      this.#cache.readValue(slot, kvHead, this.#value);
      const score = this.#logit((t * q.shape[1] + head) * this.#cache.headDim, this.#key);
      this.#sum.add(score, this.#value);
      this.#keyMass?.visit(head % this.#groupSize, j, score);
      numKeys += 1;
    }
    return numKeys;
  }

  /** Adds the landmarks of the rule, and returns their number. */
  #addLandmarks(t: number, head: number): number {
    if (this.#call.attributes['landmarks'] === 'off') return 0;
    const { positions, sequences } = this.#call.inputs;
    const position = positions.data[t];
    const contextLength = this.#cache.contextLength(sequences.data[t]);
    let numKeys = 0;
    for (let block = 0; block * this.#blockSize < contextLength; block++) {
      const last = Math.min(contextLength, (block + 1) * this.#blockSize) - 1;
      if (!this.#isLandmark(position, block, contextLength)) continue;
      if (!this.#isVisible(position, block * this.#blockSize) || !this.#isVisible(position, last)) continue;
      if (this.#addLandmark(t, head, block, last + 1 - block * this.#blockSize)) numKeys += 1;
    }
    return numKeys;
  }

  /** Adds the mean of a block whose first `numSlots` slots are in the context, if it covers all of them. */
  #addLandmark(t: number, head: number, block: number, numSlots: number): boolean {
    const { q, sequences, keyMeans, valueMeans, meanCounts } = this.#call.inputs;
    const { causal, logCount } = this.#call.attributes;
    const { headDim, valueDim } = this.#cache;
    const count = causal === true ? this.#blockSize : numSlots;
    const kvHead = Math.floor(head / this.#groupSize);
    const row = this.#cache.summaryRow(sequences.data[t], block, this.#numParts, kvHead);
    if (meanCounts.data[row] !== count) return false;
    for (let i = 0; i < headDim; i++) this.#key[i] = keyMeans.data[row * headDim + i];
    for (let i = 0; i < valueDim; i++) this.#value[i] = valueMeans.data[row * valueDim + i];
    const logit = this.#logit((t * q.shape[1] + head) * headDim, this.#key);
    this.#sum.add(logit + (logCount === true ? Math.log(count) : 0), this.#value);
    return true;
  }
}

/** An upper bound on the pairs of a step. */
function mostKeys({ q, keys, blockTable }: RecordShapes, { local, causal }: Attributes): number {
  const numSlots = blockTable[1] * keys[2];
  const sides = causal === true ? 1 : 2;
  const edges = 2 * sides * (32 - Math.clz32(numSlots)) + 2;
  return q[0] * Math.min(numSlots, sides * Number(local) + 1 + edges + maxGlobals);
}

/** Whether a query at position `i` attends to the token at position `j`. */
export function subquadraticTokenRule(attributes: Attributes): (i: number, j: number) => boolean {
  const { causal, local, logStride } = attributes;
  const globals = new Set(globalAttributes.map((name) => attributes[name] as number));
  return (i, j) => {
    if (causal === true && j > i) return false;
    const distance = Math.abs(i - j);
    return distance <= (local as number) || globals.has(j) || (logStride === true && isPowerOfTwo(distance));
  };
}

/** Whether a query at position `i` attends to the mean of a block. */
export function subquadraticLandmarkRule(
  attributes: Attributes,
  blockSize: number,
  isToken: (i: number, j: number) => boolean,
): (i: number, block: number, contextLength: number) => boolean {
  const { causal, logStride, landmarks } = attributes;
  return (i, block, contextLength) => {
    const pivot = causal === true ? Math.floor((i + 1) / blockSize) - 1 : Math.floor(i / blockSize);
    if (causal === true ? block > pivot : block === pivot) return false;
    const distance = Math.abs(pivot - block);
    if (distance > 1 && !(logStride === true && isPowerOfTwo(distance))) return false;
    if (landmarks !== 'outside-window') return true;
    for (let j = block * blockSize; j < Math.min(contextLength, (block + 1) * blockSize); j++) {
      if (!isToken(i, j)) return true;
    }
    return false;
  };
}

function isPowerOfTwo(distance: number): boolean {
  return distance > 0 && (distance & (distance - 1)) === 0;
}
