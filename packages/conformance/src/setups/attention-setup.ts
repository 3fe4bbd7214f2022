/** Caches with shuffled blocks and slots, queries, and the expected attention over them in float64. */
import { createRng, sizeOf, type DType, type Rng } from '@winnow/tensor';
import { underflow, type Arithmetic } from '../arithmetic.js';
import { guardByte } from '../guarded-memory.js';
import type { CaseTensor } from '../kernel-case.js';
import { gaussian, ints, numbersOf, product, randomTensor } from '../values.js';

/** One attention problem. */
export interface AttentionSetup {
  readonly name: string;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  readonly blockSize: number;
  readonly keyDType: DType;
  readonly valueDType: DType;
  /** Number of slots of each sequence. */
  readonly contextLengths: readonly number[];
  /** `[sequence, position]` of each query. */
  readonly queries: readonly (readonly [number, number])[];
  /** Whether logical slots hold positions in random order with gaps, some slots being empty. */
  readonly isShuffled: boolean;
  /** Whether some slots are empty, and the others hold their own positions. Default: false. */
  readonly hasGaps?: boolean;
  /** The keys of slots repeat after so many, and with them the scores. Default: no key does. */
  readonly numDistinctKeys?: number;
  readonly causal: boolean;
  readonly window: number;
  /** Whether windows are chunks. Default: they slide. */
  readonly chunked?: boolean;
  readonly softCap: number;
  /** Standard deviation of learned sinks. Default: there are none. */
  readonly sinkSpread?: number;
  /** Positions to each side with biases of their own. Default: there are no biases. */
  readonly biasReach?: number;
}

/** A logical slot: its position and its rows for each KV head. */
interface Slot {
  readonly position: number;
  readonly keys: readonly Float64Array[];
  readonly values: readonly Float64Array[];
}

interface Cache {
  readonly inputs: Readonly<Record<'keys' | 'values' | 'slotPositions' | 'blockTable', CaseTensor>>;
  readonly sequences: readonly (readonly Slot[])[];
}

interface Logit {
  readonly logit: number;
  /** Bound of the error of the logit. */
  readonly logitError: number;
}

/** A visible key of one query head. */
export interface SeenKey extends Logit {
  readonly slot: number;
  readonly position: number;
  readonly key: Float64Array;
  readonly value: Float64Array;
}

/** The tensors of a problem and its expected results. */
export interface AttentionProblem {
  readonly inputs: Readonly<Record<string, CaseTensor>>;
  readonly scale: number;
  /** Visible keys of head `head` of query `query`, by logical slot; `from` may hold other queries `[T, N, H]`. */
  seen(query: number, head: number, from?: Float64Array): SeenKey[];
  /** The sink of a head as a key without slot and value; empty without sinks. */
  sink(head: number): SeenKey[];
  /** The logit of a query head with any key. */
  meet(query: number, head: number, key: Float64Array, from?: Float64Array): Logit;
}

/** Attributes of the ops that solve the problem. */
export function attentionAttributes(setup: AttentionSetup): Record<string, number | boolean> {
  const { headDim, causal, window, chunked = false, softCap } = setup;
  return { scale: 1 / Math.sqrt(headDim), causal, window, softCap, ...(chunked ? { chunked } : {}) };
}

/** A random problem, reproducible from its seed. */
export function createAttention(setup: AttentionSetup, rng: Rng, arithmetic: Arithmetic): AttentionProblem {
  const { numHeads, numKvHeads, headDim, contextLengths, queries } = setup;
  const cache = createCache(setup, rng);
  const q = gaussian(rng, [queries.length, numHeads, headDim], 2, 0);
  const qs = numbersOf(q);
  const scale = Math.fround(1 / Math.sqrt(headDim));
  const sinkLogits = setup.sinkSpread === undefined ? undefined : gaussian(rng, [numHeads], setup.sinkSpread);
  const { biasReach: reach } = setup;
  const positionBias = reach === undefined ? undefined : gaussian(rng, [2 * reach + 1, numHeads], 2);
  const biases = positionBias && numbersOf(positionBias);
  const biased = (met: Logit, head: number, ahead: number): Logit => {
    if (reach === undefined || biases === undefined) return met;
    const row = reach + Math.max(-reach, Math.min(reach, ahead));
    const logit = met.logit + biases[row * numHeads + head];
    return { logit, logitError: met.logitError + arithmetic.unit * Math.abs(logit) };
  };
  const meet = (query: number, head: number, key: Float64Array, from = qs): Logit => {
    const begin = (query * numHeads + head) * headDim;
    return scaledProduct(from.subarray(begin, begin + headDim), key, scale, setup.softCap, arithmetic);
  };
  return {
    inputs: {
      q,
      positions: queryIntegers(setup, 1),
      sequences: queryIntegers(setup, 0),
      ...cache.inputs,
      contextLengths: ints([contextLengths.length], contextLengths),
      ...(sinkLogits === undefined ? {} : { sinkLogits }),
      ...(positionBias === undefined ? {} : { positionBias }),
    },
    scale,
    sink(head) {
      if (sinkLogits === undefined) return [];
      const [key, value] = [new Float64Array(headDim), new Float64Array(setup.valueDim)];
      return [{ slot: -1, position: -1, key, value, logit: numbersOf(sinkLogits)[head], logitError: 0 }];
    },
    meet,
    seen(query, head, from) {
      const [sequence, position] = queries[query];
      const kvHead = Math.floor(head / (numHeads / numKvHeads));
      const found: SeenKey[] = [];
      for (const [slot, { position: keyPosition, keys, values }] of cache.sequences[sequence].entries()) {
        if (!isVisible(setup, position, keyPosition)) continue;
        const key = keys[kvHead];
        const met = biased(meet(query, head, key, from), head, keyPosition - position);
        found.push({ slot, position: keyPosition, key, ...met, value: values[kvHead] });
      }
      return found;
    },
  };
}

/** A paged cache with random contents, and the contents of each logical slot of a sequence. */
function createCache(setup: AttentionSetup, rng: Rng): Cache {
  const { numKvHeads, headDim, valueDim, blockSize, contextLengths } = setup;
  const maxBlocks = Math.max(1, ...contextLengths.map((length) => Math.ceil(length / blockSize)));
  const numSequences = contextLengths.length;
  const numBlocks = numSequences * maxBlocks + 2;
  const freeBlocks = shuffled(rng, numBlocks);
  const keys = emptyCache(setup.keyDType, [numBlocks, numKvHeads, blockSize, headDim]);
  const values = emptyCache(setup.valueDType, [numBlocks, numKvHeads, blockSize, valueDim]);
  const slotPositions = new Int32Array(numBlocks * blockSize).fill(-1);
  const blockTable = new Int32Array(numSequences * maxBlocks);
  const sequences = contextLengths.map((length, sequence) => {
    const order = setup.isShuffled ? shuffled(rng, length) : Array.from({ length }, (_, j) => j);
    for (let block = 0; block < maxBlocks; block++) {
      blockTable[sequence * maxBlocks + block] = freeBlocks.pop() as number;
    }
    return order.map((position, j): Slot => {
      if ((setup.isShuffled || setup.hasGaps === true) && j % 5 === 3) return { position: -1, keys: [], values: [] };
      const block = blockTable[sequence * maxBlocks + Math.floor(j / blockSize)];
      const offset = j % blockSize;
      slotPositions[block * blockSize + offset] = position;
      const keyRng = setup.numDistinctKeys === undefined ? rng : createRng(1 + (j % setup.numDistinctKeys));
      return { position, keys: fillSlot(keys, keyRng, block, offset), values: fillSlot(values, rng, block, offset) };
    });
  });
  return {
    inputs: {
      keys,
      values,
      slotPositions: ints([numBlocks, blockSize], slotPositions),
      blockTable: ints([numSequences, maxBlocks], blockTable),
    },
    sequences,
  };
}

/** Random rows of one slot of a cache `[blocks, KV heads, block size, dim]`, dequantized. */
function fillSlot(cache: CaseTensor, rng: Rng, block: number, offset: number): Float64Array[] {
  const [, numKvHeads, blockSize, dim] = cache.shape;
  return Array.from({ length: numKvHeads }, (_, head) => {
    const row = randomTensor(rng, cache.dtype, [dim]);
    const rowIndex = (block * numKvHeads + head) * blockSize + offset;
    cache.bytes.set(row.bytes, rowIndex * sizeOf(cache.dtype, dim));
    return numbersOf(row);
  });
}

/** Whether a key is visible to a query; negative positions are empty slots. */
function isVisible({ causal, window, chunked }: AttentionSetup, query: number, key: number): boolean {
  if (key < 0 || (causal && key > query)) return false;
  if (window === 0) return true;
  if (chunked === true) return Math.floor(key / window) === Math.floor(query / window);
  return causal ? key > query - window : Math.abs(key - query) <= window >> 1;
}

function queryIntegers({ queries }: AttentionSetup, index: 0 | 1): CaseTensor {
  const integers = queries.map((query) => query[index]);
  return ints([queries.length], integers, 0);
}

function scaledProduct(
  query: Float64Array,
  key: Float64Array,
  scale: number,
  softCap: number,
  arithmetic: Arithmetic,
): Logit {
  let logit = 0;
  let magnitude = 0;
  for (let i = query.length - 1; i >= 0; i--) {
    logit += scale * query[i] * key[i];
    magnitude += scale * Math.abs(query[i] * key[i]);
  }
  // products, sums and the scale; a dequantized key has two more roundings; tanh of the cap has a slope of at most 1
  let logitError = (query.length + 5) * arithmetic.unit * magnitude + arithmetic.tiny;
  if (softCap !== 0) {
    logit = softCap * Math.tanh(logit / softCap);
    logitError += (arithmetic.elementary + 4 * arithmetic.unit) * Math.abs(logit);
  }
  return { logit, logitError };
}

/** Softmax sums over some keys. */
export interface AttentionSums {
  readonly max: number;
  readonly maxError: number;
  /** Sum of weights relative to the maximum, and its relative error. */
  readonly sum: number;
  readonly sumError: number;
  /** Weighted sum of values, and the absolute error of each. */
  readonly weighted: Float64Array;
  readonly weightedErrors: Float64Array;
}

/**
 * The error of a weight exp(d) is the error of its logit, the rounding of d and an elementary error for itself and for
 * each time that a running sum may be rescaled (about the logarithm of the number of keys); sums of n terms by n
 * roundings more.
 */
export function attentionSums(keys: readonly SeenKey[], valueDim: number, arithmetic: Arithmetic): AttentionSums {
  const { unit, elementary } = arithmetic;
  const weighted = new Float64Array(valueDim);
  const weightedErrors = new Float64Array(valueDim);
  const max = Math.max(...keys.map(({ logit }) => logit));
  const numRescalings = 2 + Math.log2(keys.length + 1);
  let sum = 0;
  let absoluteError = 0;
  for (const { logit, logitError, value } of keys) {
    const weight = Math.exp(logit - max);
    const error =
      weight * (logitError + numRescalings * (elementary + 2 * unit) + 2 * unit * (max - logit)) + underflow;
    sum += weight;
    absoluteError += error;
    for (let i = 0; i < valueDim; i++) {
      weighted[i] += weight * value[i];
      weightedErrors[i] += (error + (keys.length + 4) * unit * weight) * Math.abs(value[i]);
    }
  }
  const maxError = Math.max(0, ...keys.map(({ logitError }) => logitError)) + unit * Math.abs(max);
  return { max, maxError, sum, sumError: absoluteError / sum + (keys.length + 4) * unit, weighted, weightedErrors };
}

function emptyCache(dtype: DType, shape: readonly number[]): CaseTensor {
  return { dtype, shape, bytes: new Uint8Array(sizeOf(dtype, product(shape))).fill(guardByte) };
}

function shuffled(rng: Rng, length: number): number[] {
  const order = Array.from({ length }, (_, i) => i);
  for (let i = length - 1; i > 0; i--) {
    const j = rng.nextInt(i + 1);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
