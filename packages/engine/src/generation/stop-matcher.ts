/** Finds stop sequences in streamed text and holds back what may be the start of one. */
import { ArgumentError } from '@winnow/tensor';

export class StopMatcher {
  readonly #stops: readonly string[];
  readonly #maxHeld: number;
  #held = '';
  #isMatched = false;

  /** @throws {ArgumentError} for an empty stop sequence, and for a string instead of a list */
  constructor(stops: readonly string[]) {
    const wrong = Array.isArray(stops) ? stops.find((stop) => typeof stop !== 'string' || stop === '') : stops;
    if (wrong !== undefined) {
      const expected = 'a list of non-empty strings';
      throw new ArgumentError({ argument: 'stop', expected, actual: JSON.stringify(wrong) });
    }
    this.#stops = stops;
    this.#maxHeld = Math.max(0, ...stops.map((stop) => stop.length - 1));
  }

  get isMatched(): boolean {
    return this.#isMatched;
  }

  /** Adds text and returns what is certain to be output. After a match it returns nothing. */
  push(text: string): string {
    if (this.#isMatched) return '';
    const all = this.#held + text;
    const starts = this.#stops.map((stop) => all.indexOf(stop)).filter((start) => start >= 0);
    if (starts.length > 0) {
      this.#isMatched = true;
      this.#held = '';
      return all.slice(0, Math.min(...starts));
    }
    let begin = Math.max(0, all.length - this.#maxHeld);
    while (begin < all.length && !this.#stops.some((stop) => stop.startsWith(all.slice(begin)))) begin++;
    this.#held = all.slice(begin);
    return all.slice(0, begin);
  }

  /** Ends the stream and returns what was held back. */
  flush(): string {
    const rest = this.#held;
    this.#held = '';
    return rest;
  }
}
