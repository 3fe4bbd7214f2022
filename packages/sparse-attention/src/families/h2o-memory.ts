/** The heavy-hitter memory of chunked prefill: scores per KV head and token, and the tokens that memory holds. */
import { TopK } from '../core/top-k.js';
import type { H2oPrefillPolicy } from '../policy/policy-types.js';

/** Budgets after clamping. */
export interface H2oBudgets {
  readonly sinks: number;
  readonly local: number;
  readonly heavy: number;
}

/**
 * Budgets that leave memory smaller than a chunk, which is what makes the method pay: heavy hitters give way first, then
 * local tokens, then sinks. `notice` hears in words what was changed.
 */
export function clampBudgets(policy: H2oPrefillPolicy, notice?: (text: string) => void): H2oBudgets {
  const { chunk } = policy;
  const sinks = Math.min(policy.sinks, chunk - 1);
  const local = Math.min(policy.local, chunk - 1 - sinks);
  const heavy = Math.min(policy.heavy, chunk - 1 - sinks - local);
  if (sinks !== policy.sinks || local !== policy.local || heavy !== policy.heavy) {
    notice?.(
      `h2o-prefill: memory has to be smaller than a chunk of ${chunk} tokens: using sinks=${sinks}, local=${local}, ` +
        `heavy=${heavy} instead of sinks=${policy.sinks}, local=${policy.local}, heavy=${policy.heavy}`,
    );
  }
  return { sinks, local, heavy };
}

/** Scores and memory sets of all KV heads of one layer. */
export class H2oMemory {
  readonly budgets: H2oBudgets;
  readonly numKvHeads: number;
  /** Accumulated score of each token; f32, which bf16 would let stall. */
  scores: Float32Array[]; // [numKvHeads][capacity]
  /** Positions that memory holds, ascending, per KV head; all heads hold equally many. */
  readonly positions: Int32Array[];
  size = 0;
  readonly #topK = new TopK();
  #candidates = new Int32Array(0);
  #candidateScores = new Float32Array(0);
  #chosen = new Int32Array(0);

  constructor(budgets: H2oBudgets, numKvHeads: number) {
    this.budgets = budgets;
    this.numKvHeads = numKvHeads;
    this.scores = Array.from({ length: numKvHeads }, () => new Float32Array(0));
    const { sinks, local, heavy } = budgets;
    this.positions = Array.from({ length: numKvHeads }, () => new Int32Array(sinks + local + heavy));
  }

  /** Makes room for scores of `length` tokens. */
  reserve(length: number): void {
    if (this.scores[0].length >= length) return;
    this.scores = this.scores.map((scores) => {
      const grown = new Float32Array(Math.max(1024, 2 * length));
      grown.set(scores);
      return grown;
    });
  }

  /**
   * Builds M_c after chunk `[begin, end)`: the sinks, the last `local` tokens of the chunk, and those of M_{c-1} and the
   * chunk with the highest scores. Positions ascend; equal scores: the lower position stays.
   */
  select(begin: number, end: number): void {
    const { sinks, local, heavy } = this.budgets;
    const localBegin = Math.max(begin, end - local);
    const reserve = this.size + end - begin;
    if (this.#candidates.length < reserve) {
      this.#candidates = new Int32Array(reserve);
      this.#candidateScores = new Float32Array(reserve);
      this.#chosen = new Int32Array(Math.max(heavy, 1));
    }
    const previousSize = this.size;
    for (let head = 0; head < this.numKvHeads; head++) {
      const memory = this.positions[head];
      const candidates = this.#candidates;
      let numCandidates = 0;
      for (let i = 0; i < previousSize; i++) if (memory[i] >= sinks) candidates[numCandidates++] = memory[i];
      for (let j = Math.max(begin, sinks); j < localBegin; j++) candidates[numCandidates++] = j;
      for (let i = 0; i < numCandidates; i++) this.#candidateScores[i] = this.scores[head][candidates[i]];
      const numHeavy = this.#topK.select(this.#candidateScores, numCandidates, heavy, this.#chosen);
      let n = 0;
      for (let j = 0; j < Math.min(sinks, end); j++) memory[n++] = j;
      for (let i = 0; i < numHeavy; i++) memory[n++] = candidates[this.#chosen[i]];
      for (let j = Math.max(localBegin, sinks); j < end; j++) memory[n++] = j;
      this.size = n;
    }
  }
}

/** Pairs of query and key per head of one prompt: within chunks, and with memory. */
export interface H2oPairs {
  readonly intra: number;
  readonly inter: number;
  readonly total: number;
}

/** Counts the pairs of a prompt of `numTokens` tokens by the formula: `S (S + 1) / 2` per chunk and `S M` with memory. */
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

/** |A n B| / |A u B| of two ascending lists; 1 for two empty ones. */
export function jaccard(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let common = 0;
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) common += 1;
    if (a[i] <= b[j]) i += 1;
    else j += 1;
  }
  const union = a.length + b.length - common;
  return union === 0 ? 1 : common / union;
}
