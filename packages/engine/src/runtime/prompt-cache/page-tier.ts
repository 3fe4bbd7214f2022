/** A store of pages, and how long pages take: to read them from it, and to compute them. */
import type { PromptStore } from './store.js';

/** Weight of what was measured before, for each page: the last ten pages count for two thirds. */
const decay = 0.9;
/** A store that is slower than computing is measured again once in this many prompts. */
const promptsPerMeasurement = 16;
/** Maximum number of pages of a prompt that are read at the same time. */
export const maxReadAhead = 4;

/** Mean time of a page, in which `k` later pages reduce the weight of a page to `decay ** k`. */
class PageTime {
  #weight = 0;
  #totalMs = 0;

  note(numPages: number, milliseconds: number): void {
    const kept = decay ** numPages;
    const added = (1 - kept) / (1 - decay);
    this.#weight = this.#weight * kept + added;
    this.#totalMs = this.#totalMs * kept + (added * milliseconds) / numPages;
  }

  /** Undefined before anything was measured. */
  get meanMs(): number | undefined {
    return this.#weight === 0 ? undefined : this.#totalMs / this.#weight;
  }
}

/**
 * How long a page takes to compute, by the latest prompts. A prompt of which less than a page was computed does not tell: a step of few
 * tokens takes much longer per token. Until a whole page was computed, such a step is a lower bound.
 */
export class ComputeTime {
  readonly #blockSize: number;
  readonly #pages = new PageTime();
  #leastMs: number | undefined;

  constructor(blockSize: number) {
    this.#blockSize = blockSize;
  }

  note(numTokens: number, milliseconds: number): void {
    if (numTokens >= this.#blockSize) this.#pages.note(numTokens / this.#blockSize, milliseconds);
    else if (numTokens > 0) this.#leastMs = milliseconds;
  }

  /** Undefined before anything was computed. */
  get pageMs(): number | undefined {
    return this.#pages.meanMs ?? this.#leastMs;
  }
}

export class PageTier {
  readonly store: PromptStore;
  readonly #reads = new PageTime();
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
    const { meanMs } = this.#reads;
    return computeMs === undefined || meanMs === undefined || this.#numProbes > 0 || meanMs <= computeMs;
  }

  noteStart(): void {
    if (this.#reads.meanMs !== undefined && this.#numProbes > 0) this.#numProbes--;
  }

  /** @param milliseconds that a prompt waited for a page and for its copy to the cache */
  noteRead(milliseconds: number): void {
    this.#reads.note(1, milliseconds);
  }
}
