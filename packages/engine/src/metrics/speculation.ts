/** What speculative decoding drafted, and what it gained. */
export interface SpeculationMetrics {
  /** Tokens that were drafted and verified. */
  readonly numDraftedTokens: number;
  /** Drafted tokens that became output. Each saved a decode step. */
  readonly numAcceptedTokens: number;
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
    return { numDraftedTokens: this.#numDrafted, numAcceptedTokens: this.#numAccepted };
  }
}
