/** Jobs of a backend, one at a time over all of its memories, and memory that is freed when none runs. */
import type { PlacedJob, Runner } from './runner.js';

export class JobQueue {
  readonly #checkDisposed: () => void;
  #turn: Promise<unknown> = Promise.resolve();
  #numJobs = 0; // running and waiting
  #delayed: (() => void)[] = [];
  #running: PlacedJob | undefined;

  /** @param checkDisposed throws when the backend was disposed: workers that were told to leave did not die */
  constructor(checkDisposed: () => void) {
    this.#checkDisposed = checkDisposed;
  }

  /** Whether jobs run or wait. */
  get isBusy(): boolean {
    return this.#numJobs > 0;
  }

  /** Runs a job, at once when it is short and no other one is there, else in its turn; true when all of it ran. */
  run(job: PlacedJob, signal: AbortSignal | undefined, checkAlive: () => void): boolean | Promise<boolean> {
    if (job.share.isShort && this.#numJobs === 0) return runShort(job);
    return this.#enqueue(this.#inTurn(checkAlive, () => this.#runNow(job, signal)));
  }

  /** Calls `action` as soon as no job runs. */
  whenIdle(action: () => void): void {
    if (this.#numJobs > 0) this.#delayed.push(action);
    else action();
  }

  /** Does something in a turn of its own. */
  takeTurn(action: () => void, checkAlive: () => void): Promise<void> {
    return this.#enqueue(this.#inTurn(checkAlive, async () => action()));
  }

  /** Cancels the job at this address, if it is the one that runs. */
  cancel(address: number, runner: Runner): void {
    if (this.#running?.address === address && this.#running.runner === runner) runner.cancel();
  }

  async #inTurn<T>(checkAlive: () => void, action: () => Promise<T>): Promise<T> {
    if (this.#numJobs > 0) await this.#turn.catch(() => undefined);
    checkAlive();
    return action();
  }

  /** Appends to the queue what is already on its way to wait for its turn. */
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
