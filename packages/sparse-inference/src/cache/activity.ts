/**
 * How often each item is active: a running mean that starts from the calibration and follows observations. Items that
 * are not requested cost nothing: their mean is updated lazily when it is read.
 */

/** Half-life of an observation in steps: a few hundred tokens, about the length of a topic. */
const halfLifeSteps = 256;
const keep = 2 ** (-1 / halfLifeSteps);
/** Number of tabulated powers of `keep`; higher ones are computed. */
const numPowers = 4096;
let powers: Float64Array | undefined;

export class Activity {
  readonly #mean: Float32Array;
  readonly #at: Int32Array;
  readonly #powers: Float64Array;
  #step = 0;

  constructor(numItems: number, frequencies: ArrayLike<number> | undefined) {
    this.#mean = new Float32Array(numItems);
    if (frequencies !== undefined) this.#mean.set(frequencies);
    this.#at = new Int32Array(numItems);
    powers ??= Float64Array.from({ length: numPowers }, (_, steps) => keep ** steps);
    this.#powers = powers;
  }

  /** Bytes per item. */
  static readonly itemBytes: number = 8;

  /** Begins the next set of active items. */
  advance(): void {
    this.#step++;
  }

  /** Marks an item of the set as active, once per set. */
  observe(item: number): void {
    this.#mean[item] = this.of(item) + (1 - keep);
    this.#at[item] = this.#step;
  }

  of(item: number): number {
    const steps = this.#step - this.#at[item];
    return this.#mean[item] * (steps < numPowers ? this.#powers[steps] : keep ** steps);
  }
}
