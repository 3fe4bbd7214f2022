/** The heavy hitters that `h2o` keeps: how much of them another run keeps too, and other heads. */
import type { Backend } from '@winnow/ops';
import { jaccard, type H2oPrefillPolicy } from '@winnow/sparse-attention';
import type { DType } from '@winnow/tensor';
import { meanOf } from '../logits/statistics.js';
import type { AttentionCapture } from './capture.js';
import { h2oMemorySets } from './h2o-memory-sets.js';

export interface HeavySetReport {
  readonly name: string;
  readonly layer: number | undefined;
  /** Memory sets that were compared: one per chunk and KV head. */
  readonly numSets: number;
  /** Mean and least Jaccard similarity of the heavy sets of a run over an f32 cache and of one over q8_0. */
  readonly betweenRuns: number;
  readonly leastBetweenRuns: number;
  /** The same of the KV heads of a layer, two by two; 1 where there is one head. */
  readonly betweenHeads: number;
}

/** Runs a prompt twice. Heavy sets are memory without sinks and local tokens, after each chunk but the last. @param backend default: the reference backend, which is slow */
export async function measureHeavySets(
  policy: H2oPrefillPolicy,
  capture: AttentionCapture,
  backend?: Backend,
): Promise<HeavySetReport> {
  const heavySets = async (dtype: DType): Promise<Int32Array[][]> => {
    const sets = await h2oMemorySets(policy, capture, { dtype, backend });
    return sets.map(({ kept, isHeavy }) => kept.map((positions) => positions.filter(isHeavy)));
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
