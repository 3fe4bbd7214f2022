/** What the memory of `h2o` holds while a captured prompt runs through it. */
import { createFamily, H2oPrefillAttention, KvStore, type H2oPrefillPolicy } from '@winnow/sparse-attention';
import { ArgumentError, Tensor3, type DType } from '@winnow/tensor';
import type { AttentionCapture } from './capture.js';

/** Memory after one chunk that another follows. */
export interface H2oMemorySet {
  /** Tokens so far: the chunk's end. */
  readonly end: number;
  /** Positions kept per KV head, ascending. */
  readonly kept: readonly Int32Array[];
  /** Whether a position is kept for its score: neither a sink nor one of the last tokens. */
  readonly isHeavy: (position: number) => boolean;
}

/** Runs the prompt over a cache of this dtype. @throws {ArgumentError} for another policy */
export function h2oMemorySets(
  policy: H2oPrefillPolicy,
  { q, k, v, scale }: AttentionCapture,
  dtype: DType = 'f32',
): H2oMemorySet[] {
  const { seqLen: numTokens } = q;
  const { numHeads: numKvHeads, headDim } = k;
  const types = { keyDType: dtype, valueDType: dtype };
  const kv = new KvStore({ capacity: numTokens, numKvHeads, headDim, valueDim: v.headDim, ...types });
  kv.append(k, v, 0, numTokens);
  const family = createFamily(policy, { kv, numHeads: q.numHeads, scale });
  if (!(family instanceof H2oPrefillAttention)) {
    throw new ArgumentError({ argument: 'policy', expected: 'h2o-prefill', actual: policy.kind });
  }
  const { sinks, local } = family.memory.budgets;
  const sets: H2oMemorySet[] = [];
  for (let begin = 0; begin + policy.chunk < numTokens; begin += policy.chunk) {
    const end = begin + policy.chunk;
    family.attend(q.slice(begin, end), begin, Tensor3.create(policy.chunk, q.numHeads, v.headDim));
    sets.push({
      end,
      kept: Array.from({ length: numKvHeads }, (_, head) => Int32Array.from(family.keptPositions(head))),
      isHeavy: (position) => position >= sinks && position < end - local,
    });
  }
  return sets;
}
