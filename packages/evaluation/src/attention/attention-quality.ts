/**
 * Compares the attention of single layers and heads under a policy with dense attention and with an oracle of the same
 * budget.
 */
import type { Backend } from '@winnow/ops';
import { compareToDense, type AttentionPolicy, type HeadQuality } from '@winnow/sparse-attention';
import { meanOf } from '../logits/statistics.js';
import type { AttentionCapture } from './capture.js';
import { bytesRead } from './traffic.js';

/** One policy on one layer, or on synthetic heads of one kind. */
export interface LayerQuality {
  readonly name: string;
  readonly layer: number | undefined;
  readonly heads: readonly HeadQuality[];
  readonly mean: QualityMeans;
}

/** Means over heads (and layers), except for the extremes. */
export interface QualityMeans {
  /** Relative error of the output: mean, mean of the heads' 99th percentile, maximum. */
  readonly error: number;
  readonly errorP99: number;
  readonly errorMax: number;
  /** Softmax mass of the visited tokens: mean and minimum. */
  readonly mass: number;
  readonly minMass: number;
  /** Recall of the exact top 32 keys. */
  readonly recall: number;
  /** Density: visited pairs divided by dense pairs. */
  readonly density: number;
  /** The oracle: the same number of keys with the largest mass. */
  readonly oracleError: number;
  readonly oracleMass: number;
  /** Bytes of an f32 cache that a query of a head reads, and the bytes that dense attention would read. */
  readonly bytesRead: number;
  readonly denseBytes: number;
}

/**
 * Compares the queries from `begin` on. A layer takes seconds for thousands of tokens.
 * @param backend default: the reference backend, which is slow
 */
export async function measureAttention(
  policy: AttentionPolicy,
  capture: AttentionCapture,
  begin: number,
  backend?: Backend,
): Promise<LayerQuality> {
  const { q, k, v, scale, rotate, unrotatedQ, name, layer } = capture;
  const isRemapped = policy.kind === 'streaming' && rotate !== undefined;
  const heads = await compareToDense(
    policy,
    { q, k, v },
    { begin, scale, backend, ...(isRemapped ? { rotate, policyQueries: unrotatedQ } : {}) },
  );
  const of = (pick: (head: HeadQuality) => number): number => meanOf(heads.map(pick));
  const density = of((head) => head.density);
  const denseKeys = (begin + 1 + q.seqLen) / 2;
  const headDim = q.headDim;
  return {
    name,
    layer,
    heads,
    mean: {
      error: of((head) => head.error.mean),
      errorP99: of((head) => head.error.p99),
      errorMax: Math.max(...heads.map((head) => head.error.max)),
      mass: of((head) => head.mass.mean),
      minMass: Math.min(...heads.map((head) => head.minMass)),
      recall: of((head) => head.recall),
      density,
      oracleError: of((head) => head.oracle.error.mean),
      oracleMass: of((head) => head.oracle.mass.mean),
      bytesRead: bytesRead(policy, { denseKeys, visited: density * denseKeys, headDim }),
      denseBytes: bytesRead({ kind: 'dense' }, { denseKeys, visited: denseKeys, headDim }),
    },
  };
}

/** Means over layers; minima and maxima over all. */
export function meanQuality(layers: readonly LayerQuality[]): QualityMeans {
  const of = (key: keyof QualityMeans): number => meanOf(layers.map(({ mean }) => mean[key]));
  return {
    error: of('error'),
    errorP99: of('errorP99'),
    errorMax: Math.max(...layers.map(({ mean }) => mean.errorMax)),
    mass: of('mass'),
    minMass: Math.min(...layers.map(({ mean }) => mean.minMass)),
    recall: of('recall'),
    density: of('density'),
    oracleError: of('oracleError'),
    oracleMass: of('oracleMass'),
    bytesRead: of('bytesRead'),
    denseBytes: of('denseBytes'),
  };
}
