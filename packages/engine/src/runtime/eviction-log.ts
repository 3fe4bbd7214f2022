/** Which positions of a sequence were evicted when, so that a recomputation can repeat it. */

/** Positions evicted at once. */
export interface Eviction {
  /** Number of tokens that the sequence had by then, including evicted ones. */
  readonly numTokens: number;
  readonly positions: readonly number[];
}

export class EvictionLog {
  #evictions: Eviction[] = [];
  /** Evictions that a recomputation has repeated so far. */
  #numRepeated = 0;
  #isComplete: boolean;

  /** @param isComplete false for restored sequences with gaps, since their history is unknown */
  constructor(isComplete = true) {
    this.#isComplete = isComplete;
  }

  /** Whether it covers every eviction of the sequence. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  add(numTokens: number, positions: readonly number[]): void {
    if (positions.length === 0) return;
    this.#evictions.push({ numTokens, positions });
    this.#numRepeated = this.#evictions.length;
  }

  /** Forgets evictions from `numTokens` on, as the sequence is truncated. */
  truncate(numTokens: number): void {
    if (numTokens === 0) this.#isComplete = true;
    this.#evictions = this.#evictions
      .map((eviction) => ({
        numTokens: Math.min(eviction.numTokens, numTokens),
        positions: eviction.positions.filter((position) => position < numTokens),
      }))
      .filter(({ positions }) => positions.length > 0);
    this.#numRepeated = Math.min(this.#numRepeated, this.#evictions.length);
  }

  /** Starts over, as the sequence is recomputed from its first token. */
  rewind(): void {
    this.#numRepeated = 0;
  }

  /** The eviction that a recomputation repeats next. */
  get next(): Eviction | undefined {
    return this.#evictions[this.#numRepeated];
  }

  noteRepeated(): void {
    this.#numRepeated++;
  }

  /** Maximum number of tokens that the sequence holds at a time while it grows from none to `numTokens`. */
  maxHeld(numTokens: number): number {
    let numEvicted = 0;
    let most = 0;
    for (const eviction of this.#evictions) {
      most = Math.max(most, eviction.numTokens - numEvicted);
      numEvicted += eviction.positions.length;
    }
    return Math.max(most, numTokens - numEvicted);
  }

  fork(): EvictionLog {
    const fork = new EvictionLog(this.#isComplete);
    fork.#evictions = [...this.#evictions];
    fork.#numRepeated = this.#numRepeated;
    return fork;
  }
}
