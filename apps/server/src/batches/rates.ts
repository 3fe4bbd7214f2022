/** How fast the lines of batches are answered, and how long the rest takes. */

interface Sample {
  readonly ms: number;
  readonly numDone: number;
}

/** Rates are averages over this time, in milliseconds, or over the time since the first sample. */
const windowMs = 60_000;
/** Time between samples in milliseconds. */
const sampleMs = 2000;

export interface BatchRate {
  readonly linesPerSecond: number;
  /** Undefined while no line is answered. */
  readonly secondsLeft?: number;
}

export class BatchRates {
  readonly #now: () => number;
  readonly #samples = new Map<string, Sample[]>();

  /** @param now milliseconds since any origin */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @param numDone lines of the batch that were answered or have failed */
  add(batchId: string, numDone: number): void {
    const ms = this.#now();
    const samples = this.#samples.get(batchId) ?? [];
    if (ms - (samples.at(-1)?.ms ?? -Infinity) < sampleMs) return;
    // the last sample before the window begins it
    const first = samples.findLastIndex((sample) => sample.ms <= ms - windowMs);
    this.#samples.set(batchId, [...samples.slice(Math.max(0, first)), { ms, numDone }]);
  }

  /** @param numLeft lines that wait or run */
  rateOf(batchId: string, numDone: number, numLeft: number): BatchRate {
    const [first] = this.#samples.get(batchId) ?? [];
    const seconds = first === undefined ? 0 : (this.#now() - first.ms) / 1000;
    const perSecond = first === undefined || seconds <= 0 ? 0 : Math.max(0, numDone - first.numDone) / seconds;
    const linesPerSecond = Number(perSecond.toPrecision(3));
    return perSecond > 0 ? { linesPerSecond, secondsLeft: Math.ceil(numLeft / perSecond) } : { linesPerSecond };
  }

  forget(batchId: string): void {
    this.#samples.delete(batchId);
  }
}
