/** A pending `ensure`: the items that it still waits for, and its errors. */
import type { LoadFailure } from './slot-loads.js';

export class EnsureWait {
  readonly promise: Promise<void>;
  readonly failedItems: number[] = [];
  failure: LoadFailure | undefined;
  /** Items that are still being loaded. */
  numLeft: number;
  #resolve: () => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;
  readonly #stopListening: () => void;

  /** @param onAbort called when the signal fires before this has ended */
  constructor(numLeft: number, signal: AbortSignal | undefined, onAbort: (reason: unknown) => void) {
    this.numLeft = numLeft;
    this.promise = new Promise<void>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    const listener = (): void => onAbort(signal?.reason);
    signal?.addEventListener('abort', listener, { once: true });
    this.#stopListening = () => signal?.removeEventListener('abort', listener);
  }

  fail(item: number, failure: LoadFailure): void {
    this.failure ??= failure;
    this.failedItems.push(item);
    this.numLeft--;
  }

  resolve(): void {
    this.#stopListening();
    this.#resolve();
  }

  reject(error: unknown): void {
    this.#stopListening();
    this.#reject(error);
  }
}
