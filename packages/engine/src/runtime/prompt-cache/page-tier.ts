/** A store of pages, and how fast pages are read from it. */
import type { PromptStore } from './store.js';

/** Weight of what was measured before, for each page that is read: the last ten pages count for two thirds. */
const decay = 0.9;
/** A store that is slower than computing is measured again once in this many prompts. */
const promptsPerMeasurement = 16;
/** Maximum number of pages of a prompt that are read at the same time. */
export const maxReadAhead = 4;

export class PageTier {
  readonly store: PromptStore;
  #numPages = 0;
  #readMs = 0;
  #numSkipped = 0;
  /** Reads still to be measured. A single one says little, since concurrent reads hide each other's latency. */
  #numProbes = maxReadAhead;

  constructor(store: PromptStore) {
    this.store = store;
  }

  /** @param computeMs time to compute a page; undefined: not known yet */
  beginPrompt(computeMs: number | undefined): void {
    const isSkipped = !this.isWorthReading(computeMs);
    if (isSkipped && ++this.#numSkipped % promptsPerMeasurement === 0) this.#numProbes = maxReadAhead;
  }

  isWorthReading(computeMs: number | undefined): boolean {
    if (computeMs === undefined || this.#numPages === 0 || this.#numProbes > 0) return true;
    return this.#readMs / this.#numPages <= computeMs;
  }

  noteStart(): void {
    if (this.#numPages > 0 && this.#numProbes > 0) this.#numProbes--;
  }

  /** @param milliseconds that a prompt waited for a page and for its copy to the cache */
  noteRead(milliseconds: number): void {
    this.#numPages = this.#numPages * decay + 1;
    this.#readMs = this.#readMs * decay + milliseconds;
  }
}
