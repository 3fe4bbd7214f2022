/** A fair semaphore: limits concurrency; waiters proceed in order. */

export class Turns {
  readonly #maxConcurrency: number;
  readonly #waiting = new Set<() => void>();
  #numTaken = 0;

  constructor(maxConcurrency: number) {
    this.#maxConcurrency = maxConcurrency;
  }

  /**
   * Acquires a permit.
   * @returns a function that releases it
   * @throws the signal's reason when aborted while waiting
   */
  async take(signal: AbortSignal | undefined): Promise<() => void> {
    signal?.throwIfAborted();
    if (this.#numTaken >= this.#maxConcurrency) await this.#wait(signal);
    else this.#numTaken++;
    let isHeld = true;
    return () => {
      if (isHeld) this.#release();
      isHeld = false;
    };
  }

  #release(): void {
    this.#numTaken--;
    const [next] = this.#waiting;
    next?.();
  }

  #wait(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const start = (): void => {
        this.#waiting.delete(start);
        signal?.removeEventListener('abort', leave);
        this.#numTaken++;
        resolve();
      };
      const leave = (): void => {
        this.#waiting.delete(start);
        reject(signal?.reason as Error);
      };
      this.#waiting.add(start);
      signal?.addEventListener('abort', leave, { once: true });
    });
  }
}
