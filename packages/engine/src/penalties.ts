/** Penalties on tokens that were seen in the last part of the text. */
import type { Sampling } from './sampling-options.js';

export interface Penalties {
  readonly isActive: boolean;
  /** Counts a token of the prompt or of the output. */
  accept(tokenId: number): void;
  /** Lowers the logits of tokens seen, `logits[id]` for token `id`. */
  apply(logits: Float32Array): void;
}

export function createPenalties(sampling: Sampling, vocabSize: number): Penalties {
  const { repetitionPenalty, presencePenalty, frequencyPenalty, penaltyWindow } = sampling;
  const isActive = penaltyWindow !== 0 && (repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0);
  if (!isActive) return { isActive, accept: () => undefined, apply: () => undefined };
  const counts = new Int32Array(vocabSize);
  const recent = penaltyWindow < 0 ? undefined : new Int32Array(penaltyWindow);
  let numAccepted = 0;
  return {
    isActive,
    accept(tokenId) {
      if (recent !== undefined) {
        const at = numAccepted % recent.length;
        if (numAccepted >= recent.length) counts[recent[at] as number]!--;
        recent[at] = tokenId;
      }
      counts[tokenId]!++;
      numAccepted++;
    },
    apply(logits) {
      for (let id = 0; id < vocabSize; id++) {
        const count = counts[id] as number;
        if (count === 0) continue;
        const logit = logits[id] as number;
        const scaled = logit > 0 ? logit / repetitionPenalty : logit * repetitionPenalty;
        logits[id] = scaled - presencePenalty - count * frequencyPenalty;
      }
    },
  };
}
