/** How often the output of `verified-topk` keeps its promise: a relative error of at most epsilon. */
import type { Backend } from '@winnow/ops';
import { AttentionLayer, outputErrors, type VerifiedTopKPolicy } from '@winnow/sparse-attention';
import { meanOf, percentile } from '../logits/statistics.js';
import type { AttentionCapture } from './capture.js';

export interface CoverageReport {
  readonly name: string;
  readonly layer: number | undefined;
  /** Rows of attention: queries times heads. */
  readonly numRows: number;
  /** Rows whose error is above epsilon. */
  readonly numOutside: number;
  /** Rows that read every key, and are exact. */
  readonly numExact: number;
  /** Relative error of the output: mean, and the quantile that the policy promises to be at most epsilon. */
  readonly meanError: number;
  readonly promisedQuantile: number;
  /** Visited pairs divided by dense pairs. */
  readonly density: number;
}

/**
 * Queries from `begin` on, over the keys before them.
 * @param backend default: the reference backend, which is slow
 */
export async function measureCoverage(
  policy: VerifiedTopKPolicy,
  { q, k, v, scale, name, layer: index }: AttentionCapture,
  begin: number,
  backend?: Backend,
): Promise<CoverageReport> {
  await using layer = new AttentionLayer({
    ...{ backend, decode: policy, capacity: k.seqLen, scale },
    ...{ numHeads: q.numHeads, numKvHeads: k.numHeads, headDim: k.headDim, valueDim: v.headDim },
  });
  await layer.append(k, v);
  const queries = q.slice(begin, q.seqLen);
  const { out, pairs, errorEstimate = new Float32Array(0) } = await layer.attend('decode', queries, begin);
  const dense = await layer.attend('prefill', queries, begin);
  const errors = Array.from({ length: q.numHeads }, (_, head) => [...outputErrors(dense.out, out, head)])
    .flat()
    .sort((a, b) => a - b);
  return {
    name,
    layer: index,
    numRows: errors.length,
    numOutside: errors.filter((error) => !(error <= policy.epsilon)).length,
    numExact: errorEstimate.reduce((sum, estimate) => sum + Number(estimate === 0), 0),
    meanError: meanOf(errors),
    promisedQuantile: percentile(errors, 1 - policy.delta),
    density: pairs / dense.pairs,
  };
}
