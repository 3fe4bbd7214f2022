import { ArgumentError } from '@winnow/tensor';
import { attentionAttributes, checkAttention, visibility } from './attention-visibility.js';
import { checkSummaries } from './block-mean-append.js';
import { f32Only, i32Only } from './dtypes.js';
import { bindKeyMass, massAttribute, massOutput } from './key-mass.js';
import { attentionAxes, kvReader } from './kv-view.js';
import type { AttributeSpec, Attributes, OpSpec, RecordShapes } from './op-spec.js';
import { attentionFixedAxes, attentionInputs, bindLogit } from './sparse-inputs.js';
import { SoftmaxSum } from './softmax-sum.js';

/** Most global positions of a record. */
export const maxGlobals = 16;

/** Names of the attributes that hold global positions; -1 for none. */
export const globalAttributes: readonly string[] = Array.from({ length: maxGlobals }, (_, i) => `global${i}`);

/** How landmarks are chosen; `outside-window` leaves out blocks all of whose tokens are keys of their own already. */
export const landmarkKinds: readonly string[] = ['off', 'compat', 'outside-window'];

/**
 * Attention of query position `i` to the tokens of a window, to global positions, to tokens at distances 1, 2, 4, ... and
 * to the means of blocks of earlier tokens (landmarks), all in one softmax: `O(W + log i)` keys.
 *
 * Tokens: `i - local ... i` (bidirectional: `... i + local`); the globals, not after `i` when causal; `i - 2^k`
 * (bidirectional: and `i + 2^k`). Landmarks in blocks of `S / G` tokens, causal: with `p = floor((i + 1) / (S / G)) - 1`
 * the blocks p, p - 1 and `p - 2^k`; bidirectional: with p the block of i the blocks `p +- 1` and `p +- 2^k`, never p. Without
 * `logStride` there are no distances `2^k`. A landmark's key and value are means, as `block-mean-append` keeps them;
 * `logCount` adds the logarithm of its number of tokens to its logit. One whose `meanCounts` is not its number of tokens does
 * not exist.
 *
 * Logical slot `j` of a sequence holds position `j`; one that holds something else counts as empty. The model's own `window`
 * cuts tokens, and landmarks that do not lie inside as a whole.
 * Shapes: as in `attention`; keyMeans `[C, G, K, H]`, valueMeans `[C, G, K, D]`, meanCounts `[C, G, K]`, needed unless landmarks
 * are `off`. pairs `[T]` i32: keys of each query head; mass: see `key-mass.ts`, landmarks count for no slot.
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
    /** Tokens before the query (bidirectional: on both sides) that it sees. */
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
  bindReference({ inputs, outputs, attributes }) {
    const { q, positions, sequences, keys, keyMeans, valueMeans, meanCounts, blockTable } = inputs;
    const { y, pairs, mass } = outputs;
    const cache = kvReader(inputs);
    const { headDim, valueDim, numKvHeads } = cache;
    const numHeads = q.shape[1];
    const groupSize = numHeads / numKvHeads;
    const keyMass = bindKeyMass(mass, groupSize);
    const logit = bindLogit(q.data as Float32Array, cache, attributes);
    const isVisible = visibility(attributes);
    const isToken = subquadraticTokenRule(attributes);
    const hasLandmarks = attributes['landmarks'] !== 'off';
    const numParts = keyMeans === undefined ? 1 : keyMeans.shape[1];
    const blockSize = keys.shape[2] / numParts;
    const isLandmark = subquadraticLandmarkRule(attributes, blockSize, isToken);
    const causal = attributes['causal'] as boolean;
    const hasBias = attributes['logCount'] === true;
    const maxBlocks = blockTable.shape[1];
    const sum = new SoftmaxSum(valueDim);
    const key = new Float32Array(headDim);
    const value = new Float32Array(valueDim);

    const addLandmark = (sequence: number, block: number, kvHead: number, queryBegin: number): boolean => {
      const contextLength = cache.contextLength(sequence);
      const count = causal ? blockSize : Math.min(contextLength, (block + 1) * blockSize) - block * blockSize;
      const cacheBlock = blockTable.data[sequence * maxBlocks + Math.floor(block / numParts)];
      const row = (cacheBlock * numParts + (block % numParts)) * numKvHeads + kvHead;
      if (meanCounts.data[row] !== count) return false;
      for (let i = 0; i < headDim; i++) key[i] = keyMeans.data[row * headDim + i];
      for (let i = 0; i < valueDim; i++) value[i] = valueMeans.data[row * valueDim + i];
      sum.add(logit(queryBegin, key) + (hasBias ? Math.log(count) : 0), value);
      return true;
    };

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
          for (let j = 0; j < contextLength; j++) {
            if (!isToken(position, j) || !isVisible(position, j)) continue;
            const slot = cache.physicalSlot(sequence, j);
            if (cache.position(slot) !== j) continue;
            cache.readKey(slot, kvHead, key);
            cache.readValue(slot, kvHead, value);
            const score = logit(queryBegin, key);
            sum.add(score, value);
            keyMass?.visit(head % groupSize, j, score);
            numKeys += 1;
          }
          for (let block = 0; hasLandmarks && block * blockSize < contextLength; block++) {
            const last = Math.min(contextLength, (block + 1) * blockSize) - 1;
            if (!isLandmark(position, block, contextLength)) continue;
            if (!isVisible(position, block * blockSize) || !isVisible(position, last)) continue;
            if (addLandmark(sequence, block, kvHead, queryBegin)) numKeys += 1;
          }
          sum.finish(y.data as Float32Array, (t * numHeads + head) * valueDim);
          pairs.data[t] = numKeys;
          keyMass?.finish(head % groupSize, sum);
          if ((head + 1) % groupSize === 0) keyMass?.write(t, kvHead);
        }
      }
    };
  },
  flops: (shapes, attributes) => 2 * mostKeys(shapes, attributes) * shapes['q'][1] * (shapes['q'][2] + shapes['y'][2]),
  bytes: (shapes, attributes) =>
    4 * mostKeys(shapes, attributes) * shapes['keys'][1] * (shapes['q'][2] + shapes['y'][2]),
};

/** An upper bound of the pairs of a step. */
function mostKeys({ q, keys, blockTable }: RecordShapes, { local, causal }: Attributes): number {
  const numSlots = blockTable[1] * keys[2];
  const sides = causal === true ? 1 : 2;
  const edges = 2 * sides * (32 - Math.clz32(numSlots)) + 2;
  return q[0] * Math.min(numSlots, sides * Number(local) + 1 + edges + maxGlobals);
}

/** Whether a query at position `i` sees the token at position `j` as a key of its own. */
export function subquadraticTokenRule(attributes: Attributes): (i: number, j: number) => boolean {
  const { causal, local, logStride } = attributes;
  const globals = new Set(globalAttributes.map((name) => attributes[name] as number));
  return (i, j) => {
    if (causal === true && j > i) return false;
    const distance = Math.abs(i - j);
    return distance <= (local as number) || globals.has(j) || (logStride === true && isPowerOfTwo(distance));
  };
}

/** Whether a query at position `i` sees the mean of a block. */
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
