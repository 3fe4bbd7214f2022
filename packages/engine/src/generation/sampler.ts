/** Chooses the next token from the outputs of a step. Reuses its arrays: nothing is allocated per token. */
import { selectTopK } from '@winnow/ops';
import { createRng, NonFiniteError, type Rng, type RngState } from '@winnow/tensor';
import { createPenalties, type LogitBias, type Penalties } from './penalties.js';
import type { Sampling } from './sampling-options.js';
import type { ReadOutput } from '../memory/step-outputs.js';
import { BestReader, keepAllowed } from './token-mask.js';

/** A token with its log-probability before bias, penalties, truncation and temperature. */
export interface Choice {
  readonly tokenId: number;
  readonly logprob: number;
}

/** How many candidates to read: the top tokens suffice unless penalties change the order. */
interface CandidatePlan {
  readonly readsAll: boolean;
  readonly numCandidates: number;
}

function planCandidates(
  { temperature, topK }: Sampling,
  vocabSize: number,
  numTop: number,
  changesLogits: boolean,
): CandidatePlan {
  const isGreedy = temperature === 0;
  const readsAll = changesLogits || (!isGreedy && (topK === 0 || topK > numTop));
  return { readsAll, numCandidates: readsAll ? vocabSize : isGreedy ? 1 : numTop };
}

export class Sampler {
  readonly #sampling: Sampling;
  readonly #vocabSize: number;
  readonly #numTop: number;
  readonly #readsAll: boolean;
  readonly #rng: Rng;
  readonly #penalties: Penalties;
  readonly #best: BestReader;
  readonly #ids: Int32Array;
  readonly #allowedIds: Int32Array;
  readonly #logits: Float32Array;
  /** Logits before bias and penalties, if there are any. */
  readonly #rawLogits: Float32Array | undefined;
  readonly #weights: Float64Array;
  readonly #logSumExp = new Float32Array(1);

  /**
   * @param numTop entries of the `topValues` and `topIndices` outputs
   * @param isMasked whether every choice comes with a mask
   * @throws {ArgumentError} for a bias of a token that does not exist
   */
  constructor(sampling: Sampling, vocabSize: number, numTop: number, isMasked = false, bias: LogitBias = {}) {
    this.#sampling = sampling;
    this.#vocabSize = vocabSize;
    this.#numTop = numTop;
    this.#rng = createRng(sampling.seed);
    this.#penalties = createPenalties(sampling, vocabSize, bias);
    const { isActive } = this.#penalties;
    const { readsAll, numCandidates } = planCandidates(sampling, vocabSize, numTop, isMasked || isActive);
    this.#readsAll = readsAll;
    this.#ids = new Int32Array(numCandidates);
    this.#allowedIds = new Int32Array(isMasked ? vocabSize : 0);
    this.#logits = new Float32Array(numCandidates);
    this.#rawLogits = isActive ? new Float32Array(vocabSize) : undefined;
    this.#weights = new Float64Array(numCandidates);
    this.#best = new BestReader(isMasked && this.#isGreedy && !isActive ? numTop : 0);
  }

  /** Counts a token of the prompt for the penalties. Chosen tokens are counted by `choose`. */
  accept(tokenId: number): void {
    this.#penalties.accept(tokenId);
  }

  /**
   * Chooses from the first output row of the step that just ran.
   * @param mask allowed tokens: bit `id & 31` of word `id >> 5`
   * @throws {NonFiniteError} when a logit is not finite
   */
  async choose(read: ReadOutput, mask?: Uint32Array): Promise<Choice> {
    const numKept = await this.#readCandidates(read, mask);
    const index = this.#isGreedy ? 0 : this.#draw(numKept);
    const tokenId = this.#ids[index] as number;
    const logit = (this.#rawLogits === undefined ? this.#logits[index] : this.#rawLogits[tokenId]) as number;
    this.#penalties.accept(tokenId);
    return { tokenId, logprob: logit - (this.#logSumExp[0] as number) };
  }

  /** The state of the random number generator. */
  state(): RngState {
    return this.#rng.state();
  }

  /** Restores a state. @throws {ArgumentError} when it is invalid */
  restore(state: RngState): void {
    this.#rng.restore(state);
  }

  get #isGreedy(): boolean {
    return this.#sampling.temperature === 0;
  }

  /** Fills the candidates, best first. Returns how many there are to draw from. */
  async #readCandidates(read: ReadOutput, mask: Uint32Array | undefined): Promise<number> {
    await read('logSumExp', this.#logSumExp);
    const logSumExp = this.#logSumExp[0] as number;
    if (!Number.isFinite(logSumExp)) throw new NonFiniteError({ result: 'logits', value: logSumExp });
    if (!this.#readsAll) {
      await read('topIndices', this.#ids);
      await read('topValues', this.#logits);
      return this.#isGreedy ? 1 : Math.min(this.#sampling.topK, this.#numTop);
    }
    if (mask !== undefined && (await this.#best.read(read, mask, this.#ids, this.#logits))) return 1;
    await read('logits', this.#logits);
    return this.#selectCandidates(mask);
  }

  /** Applies bias, penalties, mask and top-k to all logits. */
  #selectCandidates(mask: Uint32Array | undefined): number {
    const { topK } = this.#sampling;
    this.#rawLogits?.set(this.#logits);
    this.#penalties.apply(this.#logits);
    const [ids, logits, allowedIds] = [this.#ids, this.#logits, this.#allowedIds];
    const numLeft = mask === undefined ? this.#vocabSize : keepAllowed(mask, allowedIds, logits);
    const numKept = Math.min(this.#isGreedy ? 1 : topK === 0 ? numLeft : topK, numLeft);
    selectTopK(logits, 0, numLeft, numKept, ids, logits);
    if (mask !== undefined) for (let i = 0; i < numKept; i++) ids[i] = allowedIds[ids[i] as number] as number;
    return numKept;
  }

  /** Index among the first `numKept` candidates, which are in descending order. */
  #draw(numKept: number): number {
    const [logits, weights] = [this.#logits, this.#weights];
    const best = logits[0] as number;
    if (!Number.isFinite(best)) return 0; // penalties can exceed the range of f32
    const numLeft = this.#cut(numKept, best);
    let total = 0;
    for (let i = 0; i < numLeft; i++) {
      weights[i] = Math.exp(((logits[i] as number) - best) / this.#sampling.temperature);
      total += weights[i] as number;
    }
    let rest = this.#rng.nextFloat() * total;
    for (let i = 0; i < numLeft - 1; i++) {
      rest -= weights[i] as number;
      if (rest < 0) return i;
    }
    return Math.max(0, numLeft - 1);
  }

  /** Top-p and min-p: how many candidates remain. */
  #cut(numKept: number, best: number): number {
    const { topP, minP } = this.#sampling;
    const weights = this.#weights;
    let sum = 0;
    for (let i = 0; i < numKept; i++) {
      weights[i] = Math.exp((this.#logits[i] as number) - best);
      sum += weights[i] as number;
    }
    let numLeft = numKept;
    if (topP < 1) {
      let mass = 0;
      for (numLeft = 0; numLeft < numKept && mass < topP * sum; numLeft++) mass += weights[numLeft] as number;
    }
    while (numLeft > 1 && (weights[numLeft - 1] as number) < minP) numLeft--; // weights are relative to the best
    return numLeft;
  }
}
