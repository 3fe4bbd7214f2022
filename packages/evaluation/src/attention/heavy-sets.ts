/** The heavy hitters that `h2o` keeps: how much of them another run keeps too, and other heads. */
import {
  createFamily,
  H2oPrefillAttention,
  jaccard,
  KvStore,
  type H2oPrefillPolicy,
  type KvRows,
} from '@winnow/sparse-attention';
import { ArgumentError, Tensor3, type DType } from '@winnow/tensor';
import { meanOf } from '../logits/statistics.js';
import type { AttentionCapture } from './capture.js';

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

/** Runs a prompt twice. Heavy sets are memory without sinks and local tokens, after each chunk but the last. */
export function measureHeavySets(policy: H2oPrefillPolicy, capture: AttentionCapture): HeavySetReport {
  const exact = heavySets(policy, capture, 'f32');
  const rounded = heavySets(policy, capture, 'q8_0');
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

/** Per chunk that another follows and KV head, ascending. */
function heavySets(
  policy: H2oPrefillPolicy,
  { q, k, v, scale }: AttentionCapture,
  dtype: DType,
): readonly (readonly Int32Array[])[] {
  const { seqLen: numTokens } = q;
  const { numHeads: numKvHeads, headDim } = k;
  const types = { keyDType: dtype, valueDType: dtype };
  const kv = new KvStore({ capacity: numTokens, numKvHeads, headDim, valueDim: v.headDim, ...types });
  kv.append(k, v, 0, numTokens);
  const family = createFamily(policy, { kv: kv satisfies KvRows, numHeads: q.numHeads, scale });
  if (!(family instanceof H2oPrefillAttention)) {
    throw new ArgumentError({ argument: 'policy', expected: 'h2o-prefill', actual: policy.kind });
  }
  const { sinks, local } = family.memory.budgets;
  const chunks: Int32Array[][] = [];
  for (let begin = 0; begin + policy.chunk < numTokens; begin += policy.chunk) {
    const end = begin + policy.chunk;
    family.attend(q.slice(begin, end), begin, Tensor3.create(policy.chunk, q.numHeads, v.headDim));
    const isHeavy = (position: number): boolean => position >= sinks && position < end - local;
    chunks.push(Array.from({ length: numKvHeads }, (_, head) => family.keptPositions(head).filter(isHeavy)));
  }
  return chunks;
}
