/** Penalties on recent tokens, and the logit bias of chosen ones. */
import { ArgumentError } from '@winnow/tensor';
import type { Sampling } from './sampling-options.js';

/** Bias by token id. */
export type LogitBias = Readonly<Record<string, number>>;

export interface Penalties {
  readonly isActive: boolean;
  /** Counts a token of the prompt or of the output. */
  accept(tokenId: number): void;
  /** Adds the bias, then lowers the logits of recent tokens, `logits[id]` for token `id`. */
  apply(logits: Float32Array): void;
}

/** @throws {ArgumentError} for a bias of a token that does not exist, or that is not a finite number */
export function createPenalties(sampling: Sampling, vocabSize: number, bias: LogitBias = {}): Penalties {
  const { repetitionPenalty, presencePenalty, frequencyPenalty, penaltyWindow } = sampling;
  const biases = biasEntries(bias, vocabSize);
  const countsTokens =
    penaltyWindow !== 0 && (repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0);
  const recent = countsTokens ? new RecentTokens(sampling, vocabSize) : undefined;
  return {
    isActive: recent !== undefined || biases.length > 0,
    accept: (tokenId) => recent?.accept(tokenId),
    apply(logits) {
      for (const [id, value] of biases) logits[id] = (logits[id] as number) + value;
      recent?.apply(logits);
    },
  };
}

function biasEntries(bias: LogitBias, vocabSize: number): readonly (readonly [number, number])[] {
  return Object.entries(bias).map(([name, value]) => {
    const id = Number(name);
    const isToken = Number.isSafeInteger(id) && id >= 0 && id < vocabSize && String(id) === name;
    if (isToken && Number.isFinite(value)) return [id, value];
    const expected = `finite numbers by token ids below ${vocabSize}`;
    throw new ArgumentError({ argument: 'logitBias', expected, actual: `${name}: ${value}` });
  });
}

/** Counts of the tokens of the last part of the text. */
class RecentTokens {
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
