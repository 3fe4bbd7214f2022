/** Chooses the next token from the outputs of a step. Reuses its arrays: nothing is allocated per token. */
import { BackendError, createRng, type RngState } from '@winnow/tensor';
import { createPenalties } from './penalties.js';
import type { Sampling } from './sampling-options.js';
import type { ReadOutput } from '../memory/step-outputs.js';
import { createBestReader, keepAllowed } from './token-mask.js';
import { selectTop } from './top-selection.js';

/** A choice with its probability before penalties, cuts and temperature. */
export interface Choice {
  readonly tokenId: number;
  readonly logprob: number;
}

export interface Sampler {
  /** Tells the penalties about a token of the prompt. Chosen tokens are counted by `choose`. */
  accept(tokenId: number): void;
  /**
   * Chooses from the first output row of the step that just ran.
   * @param mask tokens to choose from: bit `id & 31` of word `id >> 5`
   */
  choose(read: ReadOutput, mask?: Uint32Array): Promise<Choice>;
  /** Where the draws stand. */
  state(): RngState;
  /** Goes on from a state. @throws {ArgumentError} when it is none */
  restore(state: RngState): void;
}

/**
 * @param numTop entries of the `topValues` and `topIndices` outputs
 * @param isMasked whether every choice comes with a mask
 */
export function createSampler(sampling: Sampling, vocabSize: number, numTop: number, isMasked = false): Sampler {
  const { temperature, topK, topP, minP, seed } = sampling;
  const rng = createRng(seed);
  const penalties = createPenalties(sampling, vocabSize);
  const isGreedy = temperature === 0;
  // a few of the best tokens are enough unless penalties change the order or everything is wanted
  const needsAll = isMasked || penalties.isActive || (!isGreedy && (topK === 0 || topK > numTop));
  const numCandidates = needsAll ? vocabSize : isGreedy ? 1 : numTop;
  const ids = new Int32Array(numCandidates);
  const logits = new Float32Array(numCandidates);
  const rawLogits = penalties.isActive ? new Float32Array(vocabSize) : undefined;
  const weights = new Float64Array(numCandidates);
  const logSumExp = new Float32Array(1);
  const readBest = createBestReader(isMasked && isGreedy && !penalties.isActive ? numTop : 0);

  async function readCandidates(read: ReadOutput, mask: Uint32Array | undefined): Promise<number> {
    await read('logSumExp', logSumExp);
    if (!Number.isFinite(logSumExp[0])) {
      throw new BackendError({
        backend: 'sampler',
        message: `the logits of this step are not finite: log-sum-exp ${logSumExp[0]}`,
      });
    }
    if (!needsAll) {
      await read('topIndices', ids);
      await read('topValues', logits);
      return isGreedy ? 1 : Math.min(topK, numTop);
    }
    if (mask !== undefined && (await readBest(read, mask, ids, logits))) return 1;
    await read('logits', logits);
    rawLogits?.set(logits);
    penalties.apply(logits);
    let numCandidatesLeft = vocabSize;
    if (mask !== undefined) numCandidatesLeft = keepAllowed(mask, ids, logits);
    else for (let id = 0; id < vocabSize; id++) ids[id] = id;
    const numKept = isGreedy ? 1 : topK === 0 ? numCandidatesLeft : Math.min(topK, numCandidatesLeft);
    selectTop(ids, logits, numCandidatesLeft, numKept);
    return numKept;
  }

  /** Index among the first `numKept` candidates, which are in descending order. */
  function draw(numKept: number): number {
    const best = logits[0] as number;
    if (!Number.isFinite(best)) return 0; // penalties beyond the range of f32
    let sum = 0;
    for (let i = 0; i < numKept; i++) {
      weights[i] = Math.exp((logits[i] as number) - best);
      sum += weights[i] as number;
    }
    let numLeft = numKept;
    if (topP < 1) {
      let mass = 0;
      for (numLeft = 0; numLeft < numKept && mass < topP * sum; numLeft++) mass += weights[numLeft] as number;
    }
    while (numLeft > 1 && (weights[numLeft - 1] as number) < minP) numLeft--; // weights are relative to the best
    let total = 0;
    for (let i = 0; i < numLeft; i++) {
      weights[i] = Math.exp(((logits[i] as number) - best) / temperature);
      total += weights[i] as number;
    }
    let rest = rng.nextFloat() * total;
    for (let i = 0; i < numLeft - 1; i++) {
      rest -= weights[i] as number;
      if (rest < 0) return i;
    }
    return Math.max(0, numLeft - 1);
  }

  return {
    accept: (tokenId) => penalties.accept(tokenId),
    state: () => rng.state(),
    restore: (state) => rng.restore(state),
    async choose(read, mask) {
      const numKept = await readCandidates(read, mask);
      const index = isGreedy ? 0 : draw(numKept);
      const tokenId = ids[index] as number;
      const logit = (rawLogits === undefined ? logits[index] : rawLogits[tokenId]) as number;
      penalties.accept(tokenId);
      return { tokenId, logprob: logit - (logSumExp[0] as number) };
    },
  };
}
