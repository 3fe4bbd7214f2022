/**
 * What a grammar may cost. Short grammars and schemas can describe very large automata, and the text of a request is
 * not trusted. Work is counted, not timed, so that the same input is rejected on every machine.
 */
import { CapacityError } from '@winnow/tensor';
import type { TimeLimit } from './deadline.js';
import type { Grammar } from './grammar.js';

/** Steps of compiling. With the limits of states and rules, they bound the time to a few seconds. */
export const maxCompileSteps = 20_000_000;

/** Steps of a slice. */
const sliceSteps = 50_000;

export interface WorkLimits {
  /** Default `maxCompileSteps`. */
  readonly maxSteps?: number;
  /** Checked after each slice. Default: none. */
  readonly deadline?: TimeLimit | undefined;
  /** Where a place comes from. Default: the source itself. */
  readonly originOf?: Grammar['originOf'];
}

export class WorkBudget {
  /** What is being compiled: the source of errors. */
  readonly source: string;
  /** The place in the source where work is done now, for errors. */
  place = '';
  readonly #maxSteps: number;
  readonly #deadline: TimeLimit | undefined;
  readonly #originOf: Grammar['originOf'];
  #numSteps = 0;
  #sliceStart = 0;

  constructor(source: string, { maxSteps = maxCompileSteps, deadline, originOf }: WorkLimits = {}) {
    this.source = source;
    this.#maxSteps = maxSteps;
    this.#deadline = deadline;
    this.#originOf = originOf;
  }

  get numSteps(): number {
    return this.#numSteps;
  }

  /** @throws {CapacityError} when all steps together exceed the budget */
  spend(numSteps: number): void {
    this.#numSteps += numSteps;
    if (this.#numSteps > this.#maxSteps) this.refuse('work', this.#numSteps, this.#maxSteps, 'steps');
  }

  /** Whether a slice of work, a few milliseconds, is done, so that the caller should yield. If so, the next slice starts. */
  isSliceOver(): boolean {
    if (this.#numSteps - this.#sliceStart < sliceSteps) return false;
    this.#sliceStart = this.#numSteps;
    this.#checkTime();
    return true;
  }

  /** Starts over. */
  reset(): void {
    this.#numSteps = 0;
  }

  /** @throws {CapacityError} always: the source is too large at this place */
  refuse(resource: string, needed: number, available: number, unit: string): never {
    throw this.#refusal(resource, needed, available, unit);
  }

  #refusal(resource: string, needed: number, available: number, unit: string): CapacityError {
    const { source, field } = this.#originOf?.(this.place) ?? { source: this.source, field: this.place };
    return new CapacityError({ source, field, resource, needed, available, unit });
  }

  #checkTime(): void {
    this.#deadline?.check((elapsedMs, timeoutMs) =>
      this.#refusal('compile time', Math.ceil(elapsedMs), timeoutMs, 'ms'),
    );
  }
}
