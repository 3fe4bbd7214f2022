/** Which positions of a sequence were evicted when: what recomputing the sequence has to repeat. */

/** Positions evicted at once. */
export interface Eviction {
  /** How many tokens the sequence had by then, evicted ones included. */
  readonly numTokens: number;
  readonly positions: readonly number[];
}

export class EvictionLog {
  #evictions: Eviction[] = [];
  /** Evictions that a recomputation has repeated so far. */
  #numRepeated = 0;
  #isComplete: boolean;

  /** @param isComplete false for sequences that came with gaps, of which nobody knows when they were made */
  constructor(isComplete = true) {
    this.#isComplete = isComplete;
  }

  /** Whether it has every eviction of the sequence. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  add(numTokens: number, positions: readonly number[]): void {
    if (positions.length === 0) return;
    this.#evictions.push({ numTokens, positions });
    this.#numRepeated = this.#evictions.length;
  }

  /** The sequence forgets its tokens from `numTokens` on. */
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

  /** The sequence will be recomputed from its first token on. */
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
