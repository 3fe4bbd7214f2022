/** A store of pages, and how fast pages are read from it. */
import type { PromptStore } from './store.js';

/** Weight of what was measured before, for each page that is read: the last ten pages count for two thirds. */
const decay = 0.9;
/** A store that is slower than computing is measured again for one prompt in so many. */
const promptsPerMeasurement = 16;

export class PageTier {
  readonly store: PromptStore;
  #numPages = 0;
  #readMs = 0;
  #numSkipped = 0;

  constructor(store: PromptStore) {
    this.store = store;
  }

  noteRead(milliseconds: number): void {
    this.#numPages = this.#numPages * decay + 1;
    this.#readMs = this.#readMs * decay + milliseconds;
  }

  /**
   * @param computeMs time to compute a page; undefined: not known yet
   * @param isFirst whether it is the first page that a prompt lacks
   */
  isWorthReading(computeMs: number | undefined, isFirst: boolean): boolean {
    if (computeMs === undefined || this.#numPages === 0) return true;
    if (this.#readMs / this.#numPages <= computeMs) return true;
    return isFirst && ++this.#numSkipped % promptsPerMeasurement === 0;
  }
}
