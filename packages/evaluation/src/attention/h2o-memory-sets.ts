/** The contents of the `h2o` memory while it processes a captured prompt. */
import type { Backend } from '@winnow/ops';
import { AttentionLayer, clampBudgets, type H2oPrefillPolicy } from '@winnow/sparse-attention';
import type { DType } from '@winnow/tensor';
import type { AttentionCapture } from './capture.js';

/** Memory after a chunk that is not the last. */
export interface H2oMemorySet {
  /** Tokens so far: the chunk's end. */
  readonly end: number;
  /** Positions cached per KV head, ascending. */
  readonly cached: readonly Int32Array[];
  /** Whether a position is cached for its score, that is, neither a sink nor one of the last tokens. */
  readonly isHeavy: (position: number) => boolean;
}

/** Settings of the run. */
export interface MemorySetOptions {
  /** Dtype of the cache. Default: f32. */
  readonly dtype?: DType | undefined;
  /** Default: the reference backend, which is slow. */
  readonly backend?: Backend | undefined;
}

/** Runs the prompt, chunk by chunk. */
export async function h2oMemorySets(
  policy: H2oPrefillPolicy,
  { q, k, v, scale }: AttentionCapture,
  { dtype, backend }: MemorySetOptions = {},
): Promise<H2oMemorySet[]> {
  const { seqLen: numTokens } = q;
  const { sinks, local } = clampBudgets(policy);
  await using layer = new AttentionLayer({
    ...{ backend, prefill: policy, capacity: numTokens, scale, dtype },
    ...{ numHeads: q.numHeads, numKvHeads: k.numHeads, headDim: k.headDim, valueDim: v.headDim },
  });
  const sets: H2oMemorySet[] = [];
  for (let begin = 0; begin + policy.chunk < numTokens; begin += policy.chunk) {
    const end = begin + policy.chunk;
    await layer.prefill(q.slice(begin, end), k.slice(begin, end), v.slice(begin, end));
    sets.push({
      end,
      cached: (await layer.heavyHitters()).map(({ positions }) => positions),
      isHeavy: (position) => position >= sinks && position < end - local,
    });
  }
  return sets;
}
