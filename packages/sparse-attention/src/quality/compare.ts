/** A policy beside dense attention and beside the oracle of the same budget, on any queries, keys and values. */
import { Tensor3 } from '@winnow/tensor';
import { createFamily, type CreateFamilyOptions } from '../attention-layer.js';
import { rowsOf } from '../core/rows.js';
import { TopK } from '../core/top-k.js';
import { parsePolicy } from '../policy/policy-text.js';
import type { AttentionPolicy } from '../policy/policy-types.js';
import { exactWeights, massCaptured, outputErrors, recall, summarise, type Summary } from './metrics.js';

/** Quality of one query head. */
export interface HeadQuality {
  readonly head: number;
  /** Relative output error against dense. */
  readonly error: Summary;
  /** Softmax mass of the visited tokens; landmarks count as none. */
  readonly mass: Summary;
  /** The smallest mass captured. */
  readonly minMass: number;
  /** Mean share of the exact top `recallK` tokens that were visited. */
  readonly recall: number;
  /** Visited (tokens and landmarks) by dense pairs. */
  readonly density: number;
  /** The k keys of largest weight, k as many as were visited for the same query. */
  readonly oracle: { readonly error: Summary; readonly mass: Summary };
}

/** Options of `compareToDense`. */
export interface CompareOptions extends Omit<CreateFamilyOptions, 'kv' | 'numHeads'> {
  /** First query position that counts. Default: 0. */
  readonly begin?: number;
  /** Tokens of the exact top that recall looks for. Default: 32. */
  readonly recallK?: number;
  /** Queries to attend with, when they differ from those that dense attention uses (`streaming` rotates itself). */
  readonly policyQueries?: Tensor3;
}

/**
 * Runs a policy over a whole causal sequence and compares every query from `begin` on. Queries and keys are rotated
 * already, `[seqLen, heads, headDim]`. Cost: that of dense attention, twice, in f64.
 * @throws {ArgumentError | ShapeError}
 */
export function compareToDense(
  policy: AttentionPolicy | string,
  { q, k, v }: { readonly q: Tensor3; readonly k: Tensor3; readonly v: Tensor3 },
  options: CompareOptions = {},
): readonly HeadQuality[] {
  const { begin = 0, recallK = 32, policyQueries = q, ...familyOptions } = options;
  const { seqLen, numHeads } = q;
  const kv = { keys: rowsOf(k), values: rowsOf(v), length: seqLen };
  const parsed = typeof policy === 'string' ? parsePolicy(policy) : policy;
  const family = createFamily(parsed, { ...familyOptions, kv, numHeads });
  const out = Tensor3.create(seqLen, numHeads, v.headDim);
  const dense = Tensor3.create(seqLen, numHeads, v.headDim);
  const best = Tensor3.create(seqLen, numHeads, v.headDim);
  const rows = Array.from({ length: numHeads }, () => new HeadRows());
  const topK = new TopK();
  const chosen = new Int32Array(seqLen);
  const groupSize = numHeads / k.numHeads;
  family.attend(policyQueries, 0, out, {
    visits: {
      visit(query, firstHead, count, tokens, numTokens, _blocks, numBlocks) {
        if (query < begin) return;
        for (let head = firstHead; head < firstHead + count; head++) {
          const kvHead = Math.floor(head / groupSize);
          const weights = exactWeights(q.row(query, head), k, kvHead, query + 1, familyOptions.scale);
          const row = rows[head];
          row.mass.push(massCaptured(weights, tokens, numTokens));
          row.pairs += numTokens + numBlocks;
          row.densePairs += query + 1;
          const numBest = topK.select(weights, query + 1, recallK, chosen);
          row.recalls += recall(chosen.subarray(0, numBest), tokens.subarray(0, numTokens));
          average(weights, chosen, -1, v, kvHead, dense.row(query, head));
          const numOracle = topK.select(weights, query + 1, numTokens + numBlocks, chosen);
          row.oracleMass.push(massCaptured(weights, chosen, numOracle));
          average(weights, chosen, numOracle, v, kvHead, best.row(query, head));
        }
      },
    },
  });
  return rows.map(({ mass, recalls, pairs, densePairs, oracleMass }, head) => ({
    head,
    error: summarise(outputErrors(dense, out, head).subarray(begin)),
    mass: summarise(mass),
    minMass: mass.reduce((a, b) => Math.min(a, b), 1),
    recall: recalls / mass.length,
    density: pairs / densePairs,
    oracle: { error: summarise(outputErrors(dense, best, head).subarray(begin)), mass: summarise(oracleMass) },
  }));
}

class HeadRows {
  readonly mass: number[] = [];
  readonly oracleMass: number[] = [];
  recalls = 0;
  pairs = 0;
  densePairs = 0;
}

/** Weighted mean of values over the first `count` of `positions`, over all with `count` -1. */
function average(
  weights: Float64Array,
  positions: Int32Array,
  count: number,
  v: Tensor3,
  kvHead: number,
  out: Float32Array,
): void {
  const sum = new Float64Array(v.headDim);
  let total = 0;
  const end = count === -1 ? weights.length : count;
  for (let i = 0; i < end; i++) {
    const j = count === -1 ? i : positions[i];
    const begin = (j * v.numHeads + kvHead) * v.headDim;
    total += weights[j];
    for (let d = 0; d < sum.length; d++) sum[d] += weights[j] * v.data[begin + d];
  }
  for (let d = 0; d < sum.length; d++) out[d] = total === 0 ? 0 : sum[d] / total;
}
