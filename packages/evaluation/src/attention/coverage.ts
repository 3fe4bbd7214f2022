/** How often the output of `verified-topk` keeps its promise, a relative error of at most epsilon, and that of other policies beside it. */
import type { Backend } from '@winnow/ops';
import { AttentionLayer, outputErrors, type AttentionPolicy, type VerifiedTopKPolicy } from '@winnow/sparse-attention';
import { meanOf, percentile } from '../logits/statistics.js';
import type { AttentionCapture } from './capture.js';

/** Relative errors at which the rows of every policy are counted. */
export const coverageErrors = [0.05, 0.1, 0.2, 0.5] as const;

export interface CoverageReport {
  readonly name: string;
  readonly layer: number | undefined;
  /** Rows of attention: queries times heads. */
  readonly numRows: number;
  /** Rows whose error is at most each of `coverageErrors`. */
  readonly numWithin: readonly number[];
  /** Relative error of the output. */
  readonly meanError: number;
  /** Only of `verified-topk`. */
  readonly bound?: ErrorBoundCheck;
  /** Visited pairs divided by dense pairs. */
  readonly density: number;
}

/** Whether the errors keep to the bound of a policy: at most epsilon with a probability of `1 - delta`. */
export interface ErrorBoundCheck {
  /** Rows whose error is above epsilon. */
  readonly numOutside: number;
  /** Rows that read every key, and are exact. */
  readonly numExact: number;
  /** The `1 - delta` quantile of the errors, which the policy keeps at most epsilon. */
  readonly quantile: number;
}

/**
 * Queries from `begin` on, over the keys before them.
 * @param backend default: the reference backend, which is slow
 */
export async function measureCoverage(
  policy: AttentionPolicy,
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
  const numWithin = (limit: number): number => errors.filter((error) => error <= limit).length;
  const checkOf = ({ epsilon, delta }: VerifiedTopKPolicy): ErrorBoundCheck => ({
    numOutside: errors.length - numWithin(epsilon),
    numExact: errorEstimate.reduce((sum, estimate) => sum + Number(estimate === 0), 0),
    quantile: percentile(errors, 1 - delta),
  });
  return {
    name,
    layer: index,
    numRows: errors.length,
    numWithin: coverageErrors.map((limit) => numWithin(limit)),
    meanError: meanOf(errors),
    density: pairs / dense.pairs,
    ...(policy.kind === 'verified-topk' ? { bound: checkOf(policy) } : {}),
  };
}
