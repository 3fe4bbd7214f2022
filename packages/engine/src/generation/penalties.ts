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
  const counts = new Int32Array(vocabSize);
  const recent: number[] = []; // a ring, once it holds the whole window
  let oldest = 0;
  return {
    isActive,
    accept(tokenId) {
      counts[tokenId]!++;
      if (penaltyWindow < 0) return;
      if (recent.length < penaltyWindow) {
        recent.push(tokenId);
        return;
      }
      counts[recent[oldest] as number]!--;
      recent[oldest] = tokenId;
      oldest = (oldest + 1) % penaltyWindow;
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
