/** A fair semaphore: limits concurrency; waiters proceed in order. */

export interface Turns {
  /**
   * Acquires a permit.
   * @returns a function that releases it
   * @throws the signal's reason when aborted while waiting
   */
  take(signal: AbortSignal | undefined): Promise<() => void>;
}

export function createTurns(maxConcurrency: number): Turns {
  let numTaken = 0;
  const waiting = new Set<() => void>();

  function end(): void {
    numTaken--;
    const [next] = waiting;
    next?.();
  }

  return {
    async take(signal) {
      signal?.throwIfAborted();
      if (numTaken >= maxConcurrency) {
        await new Promise<void>((resolve, reject) => {
          const start = (): void => {
            waiting.delete(start);
            signal?.removeEventListener('abort', leave);
            numTaken++;
            resolve();
          };
          const leave = (): void => {
            waiting.delete(start);
            reject(signal?.reason as Error);
          };
          waiting.add(start);
          signal?.addEventListener('abort', leave, { once: true });
        });
      } else numTaken++;
      let isOver = false;
      return () => {
        if (isOver) return;
        isOver = true;
        end();
      };
    },
  };
}
