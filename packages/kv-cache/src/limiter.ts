/** Runs a limited number of tasks at a time; the others wait in a queue. */
export class Limiter {
  readonly #maxRunning: number;
  readonly #waiting: (() => void)[] = [];
  readonly #idleWaiters: (() => void)[] = [];
  #numRunning = 0;
  #peak = 0;

  constructor(maxRunning: number) {
    this.#maxRunning = maxRunning;
  }

  /** Maximum number of tasks that ran at once. */
  get peak(): number {
    return this.#peak;
  }

  async run<T>(task: () => Promise<T>): Promise<T> {
    // a woken task takes over the slot of the one that ended
    if (this.#numRunning >= this.#maxRunning) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#numRunning++;
    this.#peak = Math.max(this.#peak, this.#numRunning);
    try {
      return await task();
    } finally {
      const next = this.#waiting.shift();
      if (next !== undefined) next();
      else this.#numRunning--;
      if (this.#numRunning === 0) for (const resolve of this.#idleWaiters.splice(0)) resolve();
    }
  }

  /** Waits until no task runs. */
  async idle(): Promise<void> {
    if (this.#numRunning > 0) await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
  }
}
