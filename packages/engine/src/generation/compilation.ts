/** A computation in slices that several callers wait for, with turns of the event loop between slices. */
import type { Sliced } from '@winnow/grammar';
import { hostTurn } from '../runtime/gather.js';

export class Compilation<Result> {
  readonly result: Promise<Result>;
  #numWaiting = 0;

  constructor(work: Sliced<Result>) {
    this.result = this.#run(work);
    this.result.catch(() => {}); // callers get the error from `wait`
  }

  /** @throws the reason of the signal when it is aborted; the computation stops when no caller is left */
  async wait(signal?: AbortSignal): Promise<Result> {
    signal?.throwIfAborted();
    this.#numWaiting++;
    const ended = new AbortController();
    const options = { once: true, signal: ended.signal };
    const aborted = new Promise<never>((_, reject) => {
      signal?.addEventListener('abort', () => reject(signal.reason as Error), options);
    });
    try {
      return await Promise.race([this.result, aborted]);
    } finally {
      this.#numWaiting--;
      ended.abort();
    }
  }

  async #run(work: Sliced<Result>): Promise<Result> {
    await Promise.resolve(); // until the first caller waits
    for (;;) {
      const step = work.next();
      if (step.done === true) return step.value;
      await hostTurn();
      if (this.#numWaiting === 0)
        throw new DOMException('All requests that waited for the compilation were aborted.', 'AbortError');
    }
  }
}
