/** Penalties on recent tokens. */
import type { Sampling } from './sampling-options.js';

export interface Penalties {
  readonly isActive: boolean;
  /** Counts a token of the prompt or of the output. */
  accept(tokenId: number): void;
  /** Lowers the logits of recent tokens, `logits[id]` for token `id`. */
  apply(logits: Float32Array): void;
}

export function createPenalties(sampling: Sampling, vocabSize: number): Penalties {
  const { repetitionPenalty, presencePenalty, frequencyPenalty, penaltyWindow } = sampling;
  const isActive = penaltyWindow !== 0 && (repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0);
  if (!isActive) return { isActive, accept: () => undefined, apply: () => undefined };
  return new RecentTokens(sampling, vocabSize);
}

/** Counts of the tokens of the last part of the text. */
class RecentTokens implements Penalties {
  readonly isActive = true;
  readonly #sampling: Sampling;
  readonly #counts: Int32Array;
  /** A ring, once it holds the whole window. */
  readonly #recent: number[] = [];
  #oldest = 0;

  constructor(sampling: Sampling, vocabSize: number) {
    this.#sampling = sampling;
    this.#counts = new Int32Array(vocabSize);
  }

  accept(tokenId: number): void {
    const { penaltyWindow } = this.#sampling;
    this.#counts[tokenId]!++;
    if (penaltyWindow < 0) return;
    if (this.#recent.length < penaltyWindow) {
      this.#recent.push(tokenId);
      return;
    }
    this.#counts[this.#recent[this.#oldest] as number]!--;
    this.#recent[this.#oldest] = tokenId;
    this.#oldest = (this.#oldest + 1) % penaltyWindow;
  }

  apply(logits: Float32Array): void {
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = this.#sampling;
    const counts = this.#counts;
    for (let id = 0; id < counts.length; id++) {
      const count = counts[id] as number;
      if (count === 0) continue;
      const logit = logits[id] as number;
      const scaled = logit > 0 ? logit / repetitionPenalty : logit * repetitionPenalty;
      logits[id] = scaled - presencePenalty - count * frequencyPenalty;
    }
  }
}
