/** What speculative decoding drafted, and what it gained. */
export interface SpeculationMetrics {
  /** Tokens that were drafted and verified. */
  readonly numDraftedTokens: number;
  /** Drafted tokens that became output. */
  readonly numAcceptedTokens: number;
  /** Decode steps that were not needed: one for each accepted token. */
  readonly numSavedSteps: number;
}

/** Counts drafts. */
export class SpeculationCounts {
  #numDrafted = 0;
  #numAccepted = 0;

  add(numDrafted: number, numAccepted: number): void {
    this.#numDrafted += numDrafted;
    this.#numAccepted += numAccepted;
  }

  metrics(): SpeculationMetrics {
    const numAcceptedTokens = this.#numAccepted;
    return { numDraftedTokens: this.#numDrafted, numAcceptedTokens, numSavedSteps: numAcceptedTokens };
  }
}
