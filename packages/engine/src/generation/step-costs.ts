/**
 * What steps of several tokens cost, in plain steps, which changes less than milliseconds do while contexts grow and sessions come and go.
 * All generations of a model share it, so that each size is tried once.
 */
import { maxInvariantTokens } from '@winnow/ops';

/** Times of so many steps are kept. */
const numTimes = 5;
/** The cost of a size is the median of its steps, and the least of them while there are fewer than so many. */
const numSure = 3;
/** Times of a size that no step had since so many steps are forgotten, and tried again: a few of them sooner. */
const maxAge = { sure: 256, unsure: 32 } as const;

export class StepCosts {
  readonly #times = Array.from({ length: maxInvariantTokens + 1 }, () => new Times());
  /** By number of tokens: whether such a step was made. */
  readonly #isCompiled = new Uint8Array(maxInvariantTokens + 1);
  /** By number of tokens: measured, or between and beyond measured ones by interpolation. */
  readonly #costs = Float64Array.from({ length: maxInvariantTokens + 1 }, (_, size) => size);
  /** The most tokens of a step whose cost is known. */
  #maxKnown = 1;
  #numLong = 0;
  #numSteps = 0;

  /** The cost of a step of this many tokens. */
  of(numTokens: number): number {
    return this.#costs[numTokens] as number;
  }

  /** Whether it was measured. */
  isKnown(numTokens: number): boolean {
    return (this.#times[numTokens] as Times).isKnown;
  }

  get maxKnown(): number {
    return this.#maxKnown;
  }

  /** Number of steps of several tokens so far. */
  get numLong(): number {
    return this.#numLong;
  }

  /** Number of steps so far. */
  get numSteps(): number {
    return this.#numSteps;
  }

  /** Counts a step of one token. */
  notePlain(): void {
    this.#numSteps++;
  }

  /**
   * Records a step of several tokens.
   * @param cost undefined: not known, since the last plain steps were long ago
   * @returns what counts as its cost: what steps of this size usually cost, as far as this is known, so that a pause of the process counts
   * as little after a draft as without one
   */
  note(numTokens: number, cost: number | undefined): number {
    this.#numSteps++;
    this.#numLong++;
    // the first step of a size is not measured: its code and its memory are new
    const isCompiled = this.#isCompiled[numTokens] === 1;
    this.#isCompiled[numTokens] = 1;
    if (cost === undefined) return this.of(numTokens);
    if (!isCompiled) return Math.min(cost, this.of(numTokens));
    const times = this.#times[numTokens] as Times;
    times.add(cost, this.#numSteps);
    this.#update();
    return this.of(numTokens);
  }

  /** Forgets all costs, which seem to have changed. */
  forget(): void {
    for (const times of this.#times) times.forgetBefore(Infinity);
    this.#update();
  }

  /** Forgets costs of sizes that no step had for long. */
  forgetOld(): void {
    let hasForgotten = false;
    for (const times of this.#times) {
      const age = times.count < numSure ? maxAge.unsure : maxAge.sure;
      hasForgotten = times.forgetBefore(this.#numSteps - age) || hasForgotten;
    }
    if (hasForgotten) this.#update();
  }

  #update(): void {
    const costs = this.#costs;
    let last = 1;
    for (let size = 2; size <= maxInvariantTokens; size++) {
      if (!this.isKnown(size)) continue;
      const from = costs[last] as number;
      const { count, shortest, median } = this.#times[size] as Times;
      // a plain step that was interrupted makes others look shorter than it
      const cost = Math.max(1, count < numSure ? shortest : median);
      const perToken = (cost - from) / (size - last);
      for (let i = last + 1; i <= size; i++) costs[i] = from + perToken * (i - last);
      last = size;
    }
    this.#maxKnown = last;
    // a step of fewer tokens costs no more: those that seemed to were interrupted
    for (let size = last - 1; size > 1; size--)
      costs[size] = Math.min(costs[size] as number, costs[size + 1] as number);
    const lastCost = costs[last] as number;
    const perToken = last === 1 ? 1 : Math.max(0, lastCost - 1) / (last - 1);
    for (let size = last + 1; size <= maxInvariantTokens; size++) costs[size] = lastCost + perToken * (size - last);
  }
}

/** The latest times, or costs, of one kind of step. */
export class Times {
  count = 0;
  /** The least of them: pauses of the process, and threads that have to wake up, only make steps longer. */
  shortest = 0;
  readonly #latest = new Float64Array(numTimes);
  #next = 0;
  #lastStep = 0;

  get isKnown(): boolean {
    return this.count > 0;
  }

  /** 0 if none is known. */
  get median(): number {
    if (this.count === 0) return 0;
    return this.#latest.slice(0, this.count).sort()[this.count >> 1] as number;
  }

  add(value: number, step: number): void {
    this.#latest[this.#next] = value;
    this.#next = (this.#next + 1) % numTimes;
    this.count = Math.min(numTimes, this.count + 1);
    this.#lastStep = step;
    this.shortest = value;
    for (let i = 0; i < this.count; i++) this.shortest = Math.min(this.shortest, this.#latest[i] as number);
  }

  /** Forgets all if the last one is older; returns whether it did. */
  forgetBefore(step: number): boolean {
    if (this.count === 0 || this.#lastStep >= step) return false;
    this.count = 0;
    this.#next = 0;
    return true;
  }
}
