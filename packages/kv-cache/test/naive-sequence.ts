/** A sequence as maps without blocks: the expected contents of the block manager. */
export class NaiveSequence {
  readonly salt: string;
  tokens: number[] = [];
  numCommitted: number;
  /** The text of each held slot, by position. */
  readonly held: Map<number, string> = new Map();
  /** Page id of each detached position. */
  detached: Map<number, number> = new Map();
  /** Evicted positions, on which later values depend. */
  #history = '';

  constructor(salt: string, tokens: readonly number[]) {
    this.salt = salt;
    for (const token of tokens) this.append(token);
    this.numCommitted = tokens.length;
  }

  /** @returns the text of the token's slot */
  append(token: number): string {
    const position = this.tokens.length;
    this.tokens.push(token);
    const text = `${this.salt}|${this.tokens.join(' ')}|${this.#history}`;
    this.held.set(position, text);
    return text;
  }

  /** Drops positions from `numTokens` on. */
  truncate(numTokens: number): void {
    this.tokens = this.tokens.slice(0, numTokens);
    this.numCommitted = Math.min(this.numCommitted, numTokens);
    for (const map of [this.held, this.detached]) {
      for (const position of map.keys()) if (position >= numTokens) map.delete(position);
    }
  }

  evict(positions: readonly number[]): void {
    for (const position of positions) this.held.delete(position);
    if (positions.length > 0) this.#history += `-${positions.join(',')}`;
  }

  copy(detached: ReadonlyMap<number, number>): NaiveSequence {
    const copy = new NaiveSequence(this.salt, []);
    copy.tokens = [...this.tokens];
    copy.numCommitted = this.numCommitted;
    for (const [position, text] of this.held) copy.held.set(position, text);
    copy.detached = new Map(detached);
    copy.#history = this.#history;
    return copy;
  }
}
