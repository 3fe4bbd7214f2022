/**
 * Tracks what a step has reported to the caller's callbacks. A step is repeated when its device is lost or its batch
 * fails. It then makes the same reports in the same order, and the earlier ones are skipped.
 */
export class StepReports {
  #step: number | undefined;
  #numReported = 0;
  #next = 0;

  /**
   * Begins a step, for the first time or again.
   * @param step its first token, which differs between consecutive steps
   */
  begin(step: number): void {
    if (step !== this.#step) this.#numReported = 0;
    this.#step = step;
    this.#next = 0;
  }

  /** Call it before each report of the step. Returns false if an earlier run already made the report. */
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
