/** The budget of steps of a template. Any step takes 50 to 400 ns. */

/** Templates take up to a few hundred steps per message or tool, so this is enough for thousands of messages. */
const maxTemplateSteps = 1 << 20;
/**
 * An expression is evaluated without a pause: this many steps take about ten milliseconds, and are enough for a hundred
 * tools.
 */
const maxSliceSteps = 100_000;
/** Rendering pauses after so many steps, if it can. */
const stepsPerSlice = 1 << 14;

/** The template takes more steps than a conversation or an expression may. */
export class StepBudgetError extends Error {
  constructor(maxSteps: number, scope: string) {
    super(`expected at most ${maxSteps} steps for one ${scope}`);
    this.name = 'StepBudgetError';
  }
}

export class StepBudget {
  #left = maxTemplateSteps;
  #leftAtStart = maxTemplateSteps;

  /** Charges for operations before they run. @throws {StepBudgetError} when the budget is exceeded */
  spend(numSteps: number): void {
    this.#left -= numSteps;
    if (this.#left < 0) throw new StepBudgetError(maxTemplateSteps, 'conversation');
    if (this.#sliceSteps > maxSliceSteps) throw new StepBudgetError(maxSliceSteps, 'expression');
  }

  /** The caller should pause now, then call `startSlice`. */
  isSliceDone(): boolean {
    return this.#sliceSteps >= stepsPerSlice;
  }

  startSlice(): void {
    this.#leftAtStart = this.#left;
  }

  get #sliceSteps(): number {
    return this.#leftAtStart - this.#left;
  }
}
