import type { CapacityError } from '@winnow/tensor';

/** A limit on the time of compiling. Limits of work reject the same input everywhere; this one protects slow machines. */
export interface TimeLimit {
  /** Called after each slice. @param refusal the error for whoever waited too long, which names the place in the source */
  check(refusal: (elapsedMs: number, timeoutMs: number) => CapacityError): void;
}

/** The limit of one caller. */
export class Deadline implements TimeLimit {
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

  /** @throws {CapacityError} after the deadline */
  check(refusal: (elapsedMs: number, timeoutMs: number) => CapacityError): void {
    const { elapsedMs, timeoutMs } = this;
    if (elapsedMs > timeoutMs) throw refusal(elapsedMs, timeoutMs);
  }
}
