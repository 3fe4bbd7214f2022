import { ShapeError } from '@winnow/tensor';
import { bindKeyMass, massAttribute, massOutput, type KeyMass } from '../attention/key-mass.js';
import { attentionAxes, kvReader, type KvReader } from '../attention/kv-reader.js';
import { attentionFixedAxes, attentionInputs, bindLogit, chooseLargest } from '../attention/sparse-inputs.js';
import { attentionAttributes, checkAttention, visibility } from '../attention/visibility.js';
import { SoftmaxSum } from '../numerics/softmax-sum.js';
import { f32Only, i32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { eachSequence, stateInputs } from '../spec/recurrent-state.js';
import { attentionBytes, attentionFlops } from './attention-partial.js';
import { checkCausal, checkCounts } from './streaming-attention.js';

/**
 * Chunked prefill with a memory of heavy hitters. Chunk `c` is the positions `[c U, (c + 1) U)`, U = `chunk`. A query
 * attends to its own chunk up to itself and to the memory of its KV head, in one softmax. Per KV head, the score of a
 * chunk token starts as the sum, over the queries of the chunk and the query heads of the group, of its weights in the
 * softmax over the chunk alone; a memory token gains the same sum of the softmax over the memory alone. After the last
 * token of a chunk, memory becomes, in ascending order: the first `sinks` positions, the last `local` ones of the
 * chunk, and of the other tokens of memory and chunk the `heavy` ones with the largest scores (ties by lower position).
 *
 * All rules are by position, so results do not depend on how a prompt is split into steps. Tokens that another op
 * processed (decode) count as seen, but their queries add no scores. Logical slot `j` of a sequence holds position `j`.
 *
 * State, one row per sequence as in `recurrent-state.ts`, per KV head: memory `[R, K, E]` i32 positions (-1 for none),
 * memoryScores `[R, K, E]`, chunkScores `[R, K, U]` of the open chunk, progress `[R, K, 2]` i32 (next position, number
 * of memory tokens), with `E = sinks + local + heavy`. The initial state of a step has seen no position of the step. A
 * sequence whose first token has position 0 starts over.
 * Shapes: otherwise as in `attention`; pairs `[T, K]` i32: keys of each query head; mass: see `key-mass.ts`, in the
 * softmax over chunk and memory. Causal only.
 */
export const h2oAttention: OpSpec = {
  name: 'h2o-attention',
  inputs: { ...attentionInputs, stateFrom: stateInputs['stateFrom'], stateTo: stateInputs['stateTo'] },
  outputs: {
    memory: { dtypes: i32Only, shape: 'R K E', updates: true },
    memoryScores: { dtypes: f32Only, shape: 'R K E', updates: true },
    chunkScores: { dtypes: f32Only, shape: 'R K U', updates: true },
    progress: { dtypes: i32Only, shape: 'R K 2', updates: true },
    y: { dtypes: f32Only, shape: 'T N D' },
    pairs: { dtypes: i32Only, shape: 'T K' },
    mass: massOutput,
  },
  axes: { ...attentionAxes, R: 'numStates', E: 'memorySize', U: 'chunkSize' },
  attributes: {
    ...attentionAttributes,
    chunk: { kind: 'number', integer: true },
    local: { kind: 'number', integer: true },
    heavy: { kind: 'number', integer: true },
    sinks: { kind: 'number', integer: true, default: 0 },
    mass: massAttribute,
  },
  attributeDims: { U: 'chunk' },
  fixedAxes: [...attentionFixedAxes, 'R', 'E'],
  partition: 'heads',
  work: '0.25 * q.numElements * blockTable.maxBlocks * keys.blockSize',
  check(shapes, attributes) {
    const op = 'h2o-attention';
    checkAttention(op, shapes, attributes);
    checkCausal(op, attributes);
    checkCounts(op, attributes, { chunk: 1, local: 0, heavy: 0, sinks: 0 });
    const { local, heavy, sinks } = attributes;
    const size = Number(sinks) + Number(local) + Number(heavy);
    if (Number(shapes['memory'][2]) === size) return;
    const actual = String(shapes['memory'][2]);
    throw new ShapeError({ op, rule: 'memory', expected: `sinks + local + heavy = ${size}`, actual });
  },
  bindReference({ inputs, outputs, attributes }) {
    const { q, positions } = inputs;
    const { memory, memoryScores, chunkScores, progress, y, pairs, mass } = outputs;
    const cache = kvReader(inputs);
    const { numKvHeads } = cache;
    const numHeads = q.shape[1];
    const groupSize = numHeads / numKvHeads;
    const capacity = memory.shape[2];
    const chunk = attributes['chunk'] as number;
    const store = new HeavyStore(attributes, capacity);
    const keyMass = bindKeyMass(mass, groupSize);
    const attend = bindChunkAttend(q.data as Float32Array, cache, attributes, store, capacity, keyMass);
    return () => {
      eachSequence(inputs, (begin, end, from, to) => {
        const sequence = inputs['sequences'].data[begin];
        const isFresh = from < 0 || positions.data[begin] === 0;
        for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
          store.clear();
          if (!isFresh) {
            const row = from * numKvHeads + kvHead;
            store.next = progress.data[row * 2];
            store.count = progress.data[row * 2 + 1];
            for (let e = 0; e < store.count; e++) store.positions[e] = memory.data[row * capacity + e];
            for (let e = 0; e < store.count; e++) store.scores[e] = memoryScores.data[row * capacity + e];
            for (let i = 0; i < chunk; i++) store.chunkScores[i] = chunkScores.data[row * chunk + i];
          }
          for (let t = begin; t < end; t++) {
            const position = positions.data[t];
            store.reach(position);
            for (let g = 0; g < groupSize; g++) {
              const head = t * numHeads + kvHead * groupSize + g;
              pairs.data[t * numKvHeads + kvHead] = attend(head, kvHead, g, sequence, position, y.data as Float32Array);
            }
            keyMass?.write(t, kvHead);
            store.reach(position + 1);
          }
          const row = to * numKvHeads + kvHead;
          progress.data[row * 2] = store.next;
          progress.data[row * 2 + 1] = store.count;
          for (let e = 0; e < capacity; e++) {
            memory.data[row * capacity + e] = e < store.count ? store.positions[e] : -1;
            memoryScores.data[row * capacity + e] = e < store.count ? store.scores[e] : 0;
          }
          for (let i = 0; i < chunk; i++) chunkScores.data[row * chunk + i] = store.chunkScores[i];
        }
      });
    };
  },
  flops: attentionFlops,
  bytes: attentionBytes,
};

/** Memory and scores of one KV head. */
class HeavyStore {
  /** Positions below it were seen. */
  next = 0;
  count = 0;
  readonly positions: Int32Array;
  readonly scores: Float64Array;
  readonly chunkScores: Float64Array;
  readonly #chunk: number;
  readonly #local: number;
  readonly #heavy: number;
  readonly #sinks: number;
  // candidates of the next memory
  readonly #positions: Int32Array;
  readonly #scores: Float64Array;
  readonly #rest: Float64Array;
  readonly #chosen: Uint8Array;

  constructor({ chunk, local, heavy, sinks }: Readonly<Record<string, unknown>>, capacity: number) {
    this.#chunk = chunk as number;
    this.#local = local as number;
    this.#heavy = heavy as number;
    this.#sinks = sinks as number;
    this.positions = new Int32Array(capacity);
    this.scores = new Float64Array(capacity);
    this.chunkScores = new Float64Array(this.#chunk);
    const numCandidates = capacity + this.#chunk;
    this.#positions = new Int32Array(numCandidates);
    this.#scores = new Float64Array(numCandidates);
    this.#rest = new Float64Array(numCandidates);
    this.#chosen = new Uint8Array(numCandidates);
  }

  clear(): void {
    this.next = 0;
    this.count = 0;
    this.chunkScores.fill(0);
  }

  /** All positions below `position` were seen: closes the chunks that ended. */
  reach(position: number): void {
    const end = Math.floor(position / this.#chunk);
    for (let index = Math.floor(this.next / this.#chunk); index < end; index++) this.#close(index);
    this.next = position;
  }

  #close(index: number): void {
    const first = index * this.#chunk;
    const numCandidates = this.count + this.#chunk;
    for (let i = 0; i < numCandidates; i++) {
      const isMemory = i < this.count;
      const position = isMemory ? this.positions[i] : first + i - this.count;
      const score = isMemory ? this.scores[i] : this.chunkScores[i - this.count];
      const isKept = position < this.#sinks || position >= first + this.#chunk - this.#local;
      this.#positions[i] = position;
      this.#scores[i] = score;
      this.#rest[i] = isKept ? -Infinity : score;
    }
    let numRest = 0;
    for (let i = 0; i < numCandidates; i++) if (this.#rest[i] !== -Infinity) numRest += 1;
    chooseLargest(this.#rest, numCandidates, Math.min(this.#heavy, numRest), this.#chosen);
    this.count = 0;
    for (let i = 0; i < numCandidates; i++) {
      if (this.#chosen[i] === 0 && this.#rest[i] !== -Infinity) continue;
      this.positions[this.count] = this.#positions[i];
      this.scores[this.count++] = this.#scores[i];
    }
    this.chunkScores.fill(0);
  }
}

/** Attention of query head `g` of a group, whose weights are added to the scores; returns the number of keys. */
type ChunkAttend = (
  head: number,
  kvHead: number,
  g: number,
  sequence: number,
  position: number,
  out: Float32Array,
) => number;

function bindChunkAttend(
  q: Float32Array,
  cache: KvReader,
  attributes: Readonly<Record<string, number | string | boolean>>,
  store: HeavyStore,
  capacity: number,
  keyMass: KeyMass | undefined,
): ChunkAttend {
  const { headDim, valueDim } = cache;
  const chunk = attributes['chunk'] as number;
  const logit = bindLogit(q, cache, attributes);
  const isVisible = visibility(attributes);
  const all = new SoftmaxSum(valueDim);
  const part = new SoftmaxSum(0); // of the chunk or the memory alone
  const key = new Float32Array(headDim);
  const value = new Float32Array(valueDim);
  const logits = new Float64Array(Math.max(chunk, capacity));

  return (head, kvHead, g, sequence, position, out) => {
    const contextLength = cache.contextLength(sequence);
    let numKeys = 0;
    const add = (index: number, keyPosition: number): void => {
      logits[index] = -Infinity;
      if (keyPosition >= contextLength || !isVisible(position, keyPosition)) return;
      const slot = cache.physicalSlot(sequence, keyPosition);
      if (cache.position(slot) !== keyPosition) return;
      cache.readKey(slot, kvHead, key);
      cache.readValue(slot, kvHead, value);
      logits[index] = logit(head * headDim, key);
      all.add(logits[index], value);
      part.add(logits[index], value);
      keyMass?.visit(g, keyPosition, logits[index]);
      numKeys += 1;
    };
    const addWeights = (scores: Float64Array, count: number): void => {
      for (let i = 0; i < count; i++)
        if (logits[i] !== -Infinity) scores[i] += Math.exp(logits[i] - part.max) / part.sum;
      part.clear();
    };
    all.clear();
    part.clear();
    const first = Math.floor(position / chunk) * chunk;
    for (let j = first; j <= position; j++) add(j - first, j);
    addWeights(store.chunkScores, position - first + 1);
    for (let e = 0; e < store.count; e++) add(e, store.positions[e]);
    addWeights(store.scores, store.count);
    all.finish(out, head * valueDim);
    keyMass?.finish(g, all);
    return numKeys;
  };
}
