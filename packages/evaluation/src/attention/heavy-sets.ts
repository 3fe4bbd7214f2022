/** Overlap of the heavy hitters that `h2o` keeps, between runs and between heads. */
import type { Backend } from '@winnow/ops';
import { jaccard, type H2oPrefillPolicy } from '@winnow/sparse-attention';
import type { DType } from '@winnow/tensor';
import { meanOf } from '../logits/statistics.js';
import type { AttentionCapture } from './capture.js';
import { h2oMemorySets } from './h2o-memory-sets.js';

export interface HeavySetReport {
  readonly name: string;
  readonly layer: number | undefined;
  /** Number of compared memory sets: one per chunk and KV head. */
  readonly numSets: number;
  /** Mean and minimum Jaccard similarity of the heavy sets of runs with an f32 and a q8_0 cache. */
  readonly betweenRuns: number;
  readonly leastBetweenRuns: number;
  /** The same between pairs of KV heads of a layer; 1 for a single head. */
  readonly betweenHeads: number;
}

/**
 * Runs a prompt twice. Heavy sets are the memory without sinks and local tokens, after each chunk except the last.
 * @param backend default: the reference backend, which is slow
 */
export async function measureHeavySets(
  policy: H2oPrefillPolicy,
  capture: AttentionCapture,
  backend?: Backend,
): Promise<HeavySetReport> {
  const heavySets = async (dtype: DType): Promise<Int32Array[][]> => {
    const sets = await h2oMemorySets(policy, capture, { dtype, backend });
    return sets.map(({ cached, isHeavy }) => cached.map((positions) => positions.filter(isHeavy)));
  };
  const exact = await heavySets('f32');
  const rounded = await heavySets('q8_0');
  const similarities = exact.flatMap((sets, chunk) =>
    sets.map((set, head) => jaccard(set, rounded[chunk]?.[head] ?? new Int32Array(0))),
  );
  const pairs = exact.flatMap((sets) =>
    sets.flatMap((set, head) => sets.slice(head + 1).map((other) => jaccard(set, other))),
  );
  return {
    name: capture.name,
    layer: capture.layer,
    numSets: similarities.length,
    betweenRuns: similarities.length === 0 ? 1 : meanOf(similarities),
    leastBetweenRuns: Math.min(1, ...similarities),
    betweenHeads: pairs.length === 0 ? 1 : meanOf(pairs),
  };
}
