/** Runs jobs over a memory: on workers, or on the calling thread if memory cannot be shared. One job at a time. */

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
  /** Called right before and after, while no other job runs. */
  readonly before?: () => void;
  readonly after?: () => void;
}

export interface Runner {
  readonly numThreads: number;
  /**
   * Runs a job; returns true if all of its records ran, false if it was canceled. Short jobs finish synchronously, and
   * return a promise only if the event loop is due a turn.
   * @throws {DeviceLostError} when a worker has died
   */
  run(job: Job): boolean | Promise<boolean>;
  /** Ends the running job between two records. */
  cancel(): void;
  /** Terminates the workers because those of another memory died; the running job and later ones throw `failure`. */
  fail(failure: Error): void;
  dispose(): Promise<void>;
}
