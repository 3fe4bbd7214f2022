/** Compares a policy with dense attention and with an oracle of the same budget, on any queries, keys and values. */
import { Tensor3 } from '@winnow/tensor';
import { attend, type OneShotOptions } from '../layer/attend.js';
import type { AttendOptions, KeyVisit } from '../layer/options.js';
import type { AttentionPolicy } from '../policy/kinds.js';
import { exactWeights, massCaptured, outputErrors, recall, summarize, type Summary } from './metrics.js';
import { largestIndices } from './top-k.js';

/** Quality of one query head. */
export interface HeadQuality {
  readonly head: number;
  /** Relative output error against dense. */
  readonly error: Summary;
  /** Softmax mass of the visited tokens; landmarks count as zero. */
  readonly mass: Summary;
  /** The smallest mass captured. */
  readonly minMass: number;
  /** Mean share of the exact top `recallK` tokens that were visited. */
  readonly recall: number;
  /** Visited pairs (tokens and landmarks) as a share of dense pairs. */
  readonly density: number;
  /** The oracle visits the same number of keys per query, those with the largest weights. */
  readonly oracle: { readonly error: Summary; readonly mass: Summary };
}

/** Options of `compareToDense`. */
export interface CompareOptions extends Omit<OneShotOptions, keyof AttendOptions | 'causal'> {
  /** First query position that counts. Default: 0. */
  readonly begin?: number;
  /** Number of top tokens for recall. Default: 32. */
  readonly recallK?: number;
  /** Queries for the policy, if they differ from those of dense attention (`streaming` takes unrotated ones). */
  readonly policyQueries?: Tensor3;
}

/** Queries, keys and values `[seqLen, heads, headDim]` of a whole causal sequence; queries and keys after RoPE. */
export interface AttentionTensors {
  readonly q: Tensor3;
  readonly k: Tensor3;
  readonly v: Tensor3;
}

/**
 * Runs a policy over a whole causal sequence and compares every query from `begin` on. Cost: two runs on the backend,
 * and the exact weights of every query, in float64 on the host.
 * @throws {ArgumentError | ShapeError}
 */
export async function compareToDense(
  policy: AttentionPolicy | string,
  tensors: AttentionTensors,
  options: CompareOptions = {},
): Promise<readonly HeadQuality[]> {
  const { begin = 0, recallK = 32, policyQueries = tensors.q, ...attendOptions } = options;
  const { q, k, v } = tensors;
  const comparison = new Comparison(tensors, { begin, recallK, scale: options.scale });
  const onVisit = (visit: KeyVisit): void => comparison.add(visit);
  const { out } = await attend(policy, policyQueries, k, v, { ...attendOptions, onVisit });
  const dense = await attend('dense', q, k, v, attendOptions);
  return comparison.finish(dense.out, out);
}

interface HeadRows {
  readonly mass: number[];
  readonly oracleMass: number[];
  recalls: number;
  pairs: number;
  densePairs: number;
}

interface ComparisonOptions {
  readonly begin: number;
  readonly recallK: number;
  readonly scale: number | undefined;
}

/** Accumulates how much of each query's exact softmax the visited keys hold. */
class Comparison {
  readonly #tensors: AttentionTensors;
  readonly #options: ComparisonOptions;
  readonly #rows: readonly HeadRows[];
  readonly #oracle: Tensor3;
  readonly #best: Int32Array;

  constructor(tensors: AttentionTensors, options: ComparisonOptions) {
    const { seqLen, numHeads } = tensors.q;
    this.#tensors = tensors;
    this.#options = options;
    this.#oracle = Tensor3.create(seqLen, numHeads, tensors.v.headDim);
    this.#best = new Int32Array(seqLen);
    this.#rows = Array.from({ length: numHeads }, () => {
      return { mass: [], oracleMass: [], recalls: 0, pairs: 0, densePairs: 0 };
    });
  }

  add({ query, firstHead, numHeads, tokens, blocks }: KeyVisit): void {
    const { q, k, v } = this.#tensors;
    const { begin, recallK, scale } = this.#options;
    if (query < begin) return;
    const best = this.#best;
    for (let head = firstHead; head < firstHead + numHeads; head++) {
      const kvHead = Math.floor((head * k.numHeads) / q.numHeads);
      const weights = exactWeights(q.row(query, head), k, kvHead, query + 1, scale);
      const row = this.#rows[head];
      const numKeys = tokens.length + blocks.length;
      row.mass.push(massCaptured(weights, tokens));
      row.pairs += numKeys;
      row.densePairs += query + 1;
      row.recalls += recall(best.subarray(0, largestIndices(weights, recallK, best)), tokens);
      const ofOracle = best.subarray(0, largestIndices(weights, numKeys, best));
      row.oracleMass.push(massCaptured(weights, ofOracle));
      average(weights, ofOracle, v, kvHead, this.#oracle.row(query, head));
    }
  }

  finish(dense: Tensor3, out: Tensor3): HeadQuality[] {
    const errorsOf = (actual: Tensor3, head: number): Summary =>
      summarize(outputErrors(dense, actual, head).subarray(this.#options.begin));
    return this.#rows.map(({ mass, recalls, pairs, densePairs, oracleMass }, head) => ({
      head,
      error: errorsOf(out, head),
      mass: summarize(mass),
      minMass: mass.reduce((a, b) => Math.min(a, b), 1),
      recall: recalls / mass.length,
      density: pairs / densePairs,
      oracle: { error: errorsOf(this.#oracle, head), mass: summarize(oracleMass) },
    }));
  }
}

/** Weighted mean of the values at some positions. */
function average(weights: Float64Array, positions: Int32Array, v: Tensor3, kvHead: number, out: Float32Array): void {
  const sum = new Float64Array(v.headDim);
  let total = 0;
  for (const j of positions) {
    const begin = (j * v.numHeads + kvHead) * v.headDim;
    total += weights[j];
    for (let d = 0; d < sum.length; d++) sum[d] += weights[j] * v.data[begin + d];
  }
  for (let d = 0; d < sum.length; d++) out[d] = total === 0 ? 0 : sum[d] / total;
}
