/** Budgets of policies after clamping, and cost formulas of policies. */
import type { H2oPrefillPolicy, SparqPolicy } from './kinds.js';

/** Budgets after clamping. */
export interface H2oBudgets {
  readonly sinks: number;
  readonly local: number;
  readonly heavy: number;
}

/**
 * Clamps budgets so that memory is smaller than a chunk, without which the method does not pay: heavy hitters are
 * reduced first, then local tokens, then sinks. `notice` receives a sentence about the change.
 */
export function clampBudgets(policy: H2oPrefillPolicy, notice?: (text: string) => void): H2oBudgets {
  const { chunk } = policy;
  const sinks = Math.min(policy.sinks, chunk - 1);
  const local = Math.min(policy.local, chunk - 1 - sinks);
  const heavy = Math.min(policy.heavy, chunk - 1 - sinks - local);
  if (sinks !== policy.sinks || local !== policy.local || heavy !== policy.heavy) {
    notice?.(
      `h2o-prefill: memory must be smaller than a chunk of ${chunk} tokens: using sinks=${sinks}, local=${local}, ` +
        `heavy=${heavy} instead of sinks=${policy.sinks}, local=${policy.local}, heavy=${policy.heavy}`,
    );
  }
  return { sinks, local, heavy };
}

/** Query-key pairs per head of one prompt: within chunks, and with memory. */
export interface H2oPairs {
  readonly intra: number;
  readonly inter: number;
  readonly total: number;
}

/**
 * Counts the pairs of a prompt of `numTokens` tokens by the formula: `S (S + 1) / 2` per chunk and `S M` with memory.
 */
export function h2oPairs(policy: H2oPrefillPolicy, numTokens: number): H2oPairs {
  const { sinks, local, heavy } = clampBudgets(policy);
  let intra = 0;
  let inter = 0;
  for (let begin = 0; begin < numTokens; begin += policy.chunk) {
    const length = Math.min(policy.chunk, numTokens - begin);
    intra += (length * (length + 1)) / 2;
    if (begin > 0) inter += length * (sinks + local + heavy);
  }
  return { intra, inter, total: intra + inter };
}
export interface SparqTransfers {
  /** By the formula `S r + 2 k d + 4 d`. */
  readonly formula: number;
  /** `2 S d`. */
  readonly dense: number;
  /** `dense / formula`: the possible speed-up if memory bandwidth is the limit. */
  readonly possibleSpeedup: number;
}

/** The transfers of a step with `numTokens` tokens in the cache. `rank` and `topK` are clamped. */
export function sparqTransfers(policy: SparqPolicy, numTokens: number, headDim: number): SparqTransfers {
  const rank = Math.min(policy.rank, headDim);
  const topK = Math.min(policy.topK, numTokens);
  const formula = numTokens * rank + 2 * topK * headDim + 4 * headDim;
  const dense = 2 * numTokens * headDim;
  return { formula, dense, possibleSpeedup: dense / formula };
}
