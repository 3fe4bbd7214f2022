/** Runs at most so many tasks at a time; the others wait in turn. */

export interface Limiter {
  run<T>(task: () => Promise<T>): Promise<T>;
  /** Most tasks that ran at a time. */
  readonly peak: number;
  /** Waits until none runs. */
  idle(): Promise<void>;
}

export function createLimiter(maxRunning: number): Limiter {
  const waiting: (() => void)[] = [];
  let numRunning = 0;
  let peak = 0;
  const idlers: (() => void)[] = [];
  return {
    get peak() {
      return peak;
    },
    async run(task) {
      // whoever is woken takes over the place of the task that ended
      if (numRunning >= maxRunning) await new Promise<void>((resolve) => waiting.push(resolve));
      else numRunning++;
      peak = Math.max(peak, numRunning);
      try {
        return await task();
      } finally {
        const next = waiting.shift();
        if (next !== undefined) next();
        else numRunning--;
        if (numRunning === 0) for (const resolve of idlers.splice(0)) resolve();
      }
    },
    async idle() {
      if (numRunning > 0) await new Promise<void>((resolve) => idlers.push(resolve));
    },
  };
}
