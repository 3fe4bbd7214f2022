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

/** Counts the work of a slice. Work is counted, not timed, so that a computation yields in the same places everywhere. */
export class SliceCounter {
  readonly #stepsPerSlice: number;
  #numSteps = 0;

  constructor(stepsPerSlice: number) {
    this.#stepsPerSlice = stepsPerSlice;
  }

  /** Returns true when the slice is done, so that the caller should yield. Then the next slice starts. */
  spend(numSteps: number): boolean {
    this.#numSteps += numSteps;
    if (this.#numSteps < this.#stepsPerSlice) return false;
    this.#numSteps = 0;
    return true;
  }
}
