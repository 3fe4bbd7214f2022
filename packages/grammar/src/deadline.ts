/** A limit on the time of compiling. Limits of work reject the same input everywhere; this one protects slow machines. */
export class Deadline {
  readonly timeoutMs: number;
  readonly #now: () => number;
  readonly #startMs: number;

  /** @param now milliseconds since any point in time */
  constructor(timeoutMs: number, now: () => number) {
    this.timeoutMs = timeoutMs;
    this.#now = now;
    this.#startMs = now();
  }

  get elapsedMs(): number {
    return this.#now() - this.#startMs;
  }
}
