/**
 * How often each item is active: a running mean that starts from the calibration and follows what is observed. Items that
 * are not requested cost nothing: their mean is updated when it is read.
 */

/** Steps after which an observation weighs half as much: a few hundred tokens, the length of a topic. */
const halfLifeSteps = 256;
const keep = 2 ** (-1 / halfLifeSteps);
/** Powers of `keep`, as far as single steps matter; older ones are computed. */
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

  /** Another set of active items follows. */
  advance(): void {
    this.#step++;
  }

  /** The item is in the set. Once per set. */
  observe(item: number): void {
    this.#mean[item] = this.of(item) + (1 - keep);
    this.#at[item] = this.#step;
  }

  of(item: number): number {
    const steps = this.#step - this.#at[item];
    return this.#mean[item] * (steps < numPowers ? this.#powers[steps] : keep ** steps);
  }
}
