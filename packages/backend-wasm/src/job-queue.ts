/** Jobs of a backend, one at a time over all of its memories, and memory that is freed when none runs. */
import type { PlacedJob, Runner } from './runner.js';

export interface JobQueue {
  /** Whether jobs run or wait. */
  readonly isBusy: boolean;
  /** Runs a job, at once when it is short and no other one is there, else in its turn; true when all of it ran. */
  run(job: PlacedJob, signal: AbortSignal | undefined, checkAlive: () => void): boolean | Promise<boolean>;
  /** Calls `action` as soon as no job runs. */
  whenIdle(action: () => void): void;
  /** Does something in a turn of its own. */
  takeTurn(action: () => void, checkAlive: () => void): Promise<void>;
  /** Cancels the job at this address, if it is the one that runs. */
  cancel(address: number, runner: Runner): void;
}

/** @param checkDisposed throws when the backend was disposed: workers that were told to leave did not die */
export function createJobQueue(checkDisposed: () => void): JobQueue {
  let turn: Promise<unknown> = Promise.resolve();
  let numJobs = 0; // running and waiting
  let delayed: (() => void)[] = [];
  let running: PlacedJob | undefined;

  async function inTurn<T>(checkAlive: () => void, action: () => Promise<T>): Promise<T> {
    if (numJobs > 0) await turn.catch(() => undefined);
    checkAlive();
    return action();
  }

  /** Appends to the queue what is already on its way to wait for its turn. */
  function enqueue<T>(waiting: Promise<T>): Promise<T> {
    const result = waiting.finally(endTurn);
    numJobs++;
    turn = result;
    return result;
  }

  function endTurn(): void {
    numJobs--;
    if (numJobs > 0) return;
    const actions = delayed;
    delayed = [];
    for (const action of actions) action();
  }

  async function runNow(job: PlacedJob, signal: AbortSignal | undefined): Promise<boolean> {
    signal?.throwIfAborted();
    const { runner } = job;
    running = job;
    const cancel = (): void => runner.cancel();
    signal?.addEventListener('abort', cancel);
    try {
      job.before?.();
      return await runner.run(job);
    } catch (error) {
      checkDisposed();
      throw error;
    } finally {
      job.after?.();
      running = undefined;
      signal?.removeEventListener('abort', cancel);
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

  return {
    get isBusy() {
      return numJobs > 0;
    },
    run(job, signal, checkAlive) {
      if (job.share.isShort && numJobs === 0) return runShort(job);
      return enqueue(inTurn(checkAlive, () => runNow(job, signal)));
    },
    whenIdle(action) {
      if (numJobs > 0) delayed.push(action);
      else action();
    },
    takeTurn: (action, checkAlive) => enqueue(inTurn(checkAlive, async () => action())),
    cancel(address, runner) {
      if (running?.address === address && running.runner === runner) runner.cancel();
    },
  };
}
