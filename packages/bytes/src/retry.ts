/** Retries after transient failures. */

export interface RetryOptions {
  /** Maximum number of consecutive failures without progress. */
  readonly maxRetries: number;
  /** Delay before the first retry; doubles with each. */
  readonly delayMs: number;
}

/** A failure that is worth a retry. */
export class TransientError extends Error {
  /** Minimum delay before the next attempt. */
  readonly waitMs: number;

  constructor(message: string, waitMs = 0, options?: { cause?: unknown }) {
    super(message, options);
    this.waitMs = waitMs;
  }
}

/** Counts consecutive failures without progress, and waits between attempts. */
export class Retries {
  readonly #options: RetryOptions;
  #numFailures = 0;

  constructor(options: RetryOptions) {
    this.#options = options;
  }

  /** Number of failures since the last progress. */
  get numFailures(): number {
    return this.#numFailures;
  }

  /**
   * Waits before the next attempt.
   * @param hasProgressed whether the attempt that failed had got further than those before
   * @param waitMs minimum delay
   * @returns false, at once, when there must be no further attempt
   * @throws the reason of `signal`
   */
  async next(hasProgressed: boolean, waitMs: number, signal: AbortSignal | undefined): Promise<boolean> {
    const { maxRetries, delayMs } = this.#options;
    this.#numFailures = hasProgressed ? 1 : this.#numFailures + 1;
    if (this.#numFailures > maxRetries) return false;
    await wait(Math.max(waitMs, delayMs * 2 ** (this.#numFailures - 1)), signal);
    return true;
  }
}

/**
 * Repeats `attempt` while it fails with `TransientError`. The count of failures is reset whenever `progress` has grown.
 * @throws {TransientError} with the number of attempts, after the last one; the reason of `signal`; other errors
 *   immediately
 */
export async function retry<T>(
  attempt: () => Promise<T>,
  progress: () => number,
  options: RetryOptions,
  signal: AbortSignal,
): Promise<T> {
  const retries = new Retries(options);
  let last = progress();
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof TransientError)) throw error;
      const hasProgressed = progress() > last;
      last = progress();
      if (await retries.next(hasProgressed, error.waitMs, signal)) continue;
      const message = `${error.message}, gave up after ${retries.numFailures} attempts`;
      throw new TransientError(message, 0, { cause: error.cause ?? error });
    }
  }
}

function wait(delayMs: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, delayMs);
    if (signal?.aborted === true) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
}
