/** Runs jobs over a memory: on workers, or on the calling thread where memory cannot be shared. One job at a time. */

import type { CallerShare } from './caller-share.js';

/** Records `[begin, end)` of the job block at `address`. */
export interface Job {
  readonly address: number;
  readonly begin: number;
  readonly end: number;
  readonly share: CallerShare;
}

/** A job in one of several memories. */
export interface PlacedJob extends Job {
  readonly runner: Runner;
  /** What is to be done right before and after, when no other job runs. */
  readonly before?: () => void;
  readonly after?: () => void;
}

export interface Runner {
  readonly numThreads: number;
  /**
   * The job ended or was cancelled on the way: true when all of its records ran. Short jobs end before the call does,
   * and give a promise only when the event loop is due a turn.
   * @throws {DeviceLostError} when a worker died, now or before
   */
  run(job: Job): boolean | Promise<boolean>;
  /** Makes the running job end between two records. */
  cancel(): void;
  /** Ends the workers because those of another memory died; the running job and later ones throw `failure`. */
  fail(failure: Error): void;
  dispose(): Promise<void>;
}
