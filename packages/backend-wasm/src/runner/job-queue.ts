/** The job queue of a backend: one job at a time over all of its memories, and deferred frees. */
import type { PlacedJob, Runner } from './runner.js';

export class JobQueue {
  readonly #checkDisposed: () => void;
  #turn: Promise<unknown> = Promise.resolve();
  #numJobs = 0; // running and waiting
  #delayed: (() => void)[] = [];
  #running: PlacedJob | undefined;

  /** @param checkDisposed throws when the backend was disposed of, whose terminated workers are no failure */
  constructor(checkDisposed: () => void) {
    this.#checkDisposed = checkDisposed;
  }

  /** Whether jobs run or wait. */
  get isBusy(): boolean {
    return this.#numJobs > 0;
  }

  /** Runs a job, synchronously if it is short and the queue is empty, else in turn; returns true if all of it ran. */
  run(job: PlacedJob, signal: AbortSignal | undefined, checkAlive: () => void): boolean | Promise<boolean> {
    if (job.share.isShort && this.#numJobs === 0) return runShort(job);
    return this.#enqueue(this.#inTurn(checkAlive, () => this.#runNow(job, signal)));
  }

  /** Calls `action` as soon as no job runs. */
  whenIdle(action: () => void): void {
    if (this.#numJobs > 0) this.#delayed.push(action);
    else action();
  }

  /** Runs an action in its own turn. */
  takeTurn(action: () => void, checkAlive: () => void): Promise<void> {
    return this.#enqueue(this.#inTurn(checkAlive, async () => action()));
  }

  /** Cancels the job at this address if it is running. */
  cancel(address: number, runner: Runner): void {
    if (this.#running?.address === address && this.#running.runner === runner) runner.cancel();
  }

  async #inTurn<T>(checkAlive: () => void, action: () => Promise<T>): Promise<T> {
    if (this.#numJobs > 0) await this.#turn.catch(() => undefined);
    checkAlive();
    return action();
  }

  /** Appends a promise that already waits for its turn. */
  #enqueue<T>(waiting: Promise<T>): Promise<T> {
    const result = waiting.finally(() => this.#endTurn());
    this.#numJobs++;
    this.#turn = result;
    return result;
  }

  #endTurn(): void {
    this.#numJobs--;
    if (this.#numJobs > 0) return;
    const actions = this.#delayed;
    this.#delayed = [];
    for (const action of actions) action();
  }

  async #runNow(job: PlacedJob, signal: AbortSignal | undefined): Promise<boolean> {
    signal?.throwIfAborted();
    const { runner } = job;
    this.#running = job;
    const cancel = (): void => runner.cancel();
    signal?.addEventListener('abort', cancel);
    try {
      job.before?.();
      return await runner.run(job);
    } catch (error) {
      this.#checkDisposed();
      throw error;
    } finally {
      job.after?.();
      this.#running = undefined;
      signal?.removeEventListener('abort', cancel);
    }
  }
}

function runShort(job: PlacedJob): boolean | Promise<boolean> {
  job.before?.();
  try {
    return job.runner.run(job);
  } finally {
    job.after?.();
  }
}
