/** The calls of a model that take turns: one after the other, until the model is disposed of. */
import { ReleasedError } from '@winnow/tensor';

export class Turns {
  #queue: Promise<unknown> = Promise.resolve();
  #disposal: Promise<void> | undefined;

  /** @throws {ReleasedError} */
  checkOpen(): void {
    if (this.#disposal !== undefined) throw new ReleasedError('model');
  }

  /** Runs a task after those before it, whether or not they succeeded. */
  take<T>(task: () => Promise<T>): Promise<T> {
    const result = this.#queue.then(task);
    this.#queue = result.catch(() => undefined);
    return result;
  }

  /** Releases the model after the task that is running; all callers wait for the same disposal. */
  dispose(release: () => Promise<void>): Promise<void> {
    this.#disposal ??= this.take(release);
    return this.#disposal;
  }
}
