/**
 * What a step has reported to callbacks of the caller. A step runs again when its device was lost or its batch failed. It makes the
 * same reports in the same order then, and those that were made before are left out.
 */
export class StepReports {
  #step: number | undefined;
  #numReported = 0;
  #next = 0;

  /** A step begins, for the first time or again. @param step its first token: steps that follow each other differ in it */
  begin(step: number): void {
    if (step !== this.#step) this.#numReported = 0;
    this.#step = step;
    this.#next = 0;
  }

  /** Call it before each report of the step. False when an earlier run has made the report. */
  take(): boolean {
    if (this.#next++ < this.#numReported) return false;
    this.#numReported = this.#next;
    return true;
  }
}

/** A step whose layers are traced. */
export interface TracedStep {
  /** Index of its first token. */
  readonly begin: number;
  readonly numTokens: number;
  readonly reports: StepReports;
}
