/** Waiting for changes, for turns, and until a signal. */

/** Settles as the promise does, but at the latest with the signal's reason. */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(signal.reason);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
    void promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}

/** A condition that is checked again after each change. */
export class Changes {
  #next = Promise.withResolvers<void>();

  notify(): void {
    this.#next.resolve();
    this.#next = Promise.withResolvers();
  }

  /** Resolves with the next change. @throws the signal's reason */
  next(signal: AbortSignal): Promise<void> {
    return untilAborted(this.#next.promise, signal);
  }
}

/** Runs tasks one after the other, in the order of their calls. */
export class Turns {
  #last: Promise<void> = Promise.resolve();

  /** @throws the signal's reason, when it fires before the task has its turn */
  async run(task: () => Promise<void>, signal: AbortSignal): Promise<void> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = before.then(() => promise); // a task that gives up does not let later ones overtake the earlier ones
    try {
      await untilAborted(before, signal);
      await task();
    } finally {
      resolve();
    }
  }
}
