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

/**
 * Repeats `attempt` while it fails with `TransientError`. The count of failures is reset whenever `progress` has grown.
 * @throws {TransientError} with the number of attempts, after the last one; the reason of `signal`; other errors
 *   immediately
 */
export async function retry<T>(
  attempt: () => Promise<T>,
  progress: () => number,
  { maxRetries, delayMs }: RetryOptions,
  signal: AbortSignal,
): Promise<T> {
  let numFailures = 0;
  let last = progress();
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof TransientError)) throw error;
      numFailures = progress() > last ? 1 : numFailures + 1;
      last = progress();
      if (numFailures > maxRetries) {
        const message = `${error.message}, gave up after ${numFailures} attempts`;
        throw new TransientError(message, 0, { cause: error.cause ?? error });
      }
      await wait(Math.max(error.waitMs, delayMs * 2 ** (numFailures - 1)), signal);
    }
  }
}

function wait(delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, delayMs);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
