/** Long computations in slices, so that they need not block an event loop. */

/** A computation that yields whenever it has worked for some milliseconds. */
export type Sliced<Result> = Generator<void, Result, void>;

/** Runs a computation to its end. */
export function finish<Result>(work: Sliced<Result>): Result {
  for (;;) {
    const step = work.next();
    if (step.done === true) return step.value;
  }
}
