/** Runs jobs over a memory: on workers, or on the calling thread where memory cannot be shared. One job at a time. */

import type { CallerShare } from './caller-share.js';

/** Records `[begin, end)` of the job block at `address`. */
export interface Job {
  readonly address: number;
  readonly begin: number;
  readonly end: number;
  readonly share: CallerShare;
}

export interface Runner {
  readonly numThreads: number;
  /**
   * The job ended or was cancelled on the way: true when all of its records ran. Short jobs end before the call does,
   * and give a promise only when the event loop is due a turn.
   * @throws {BackendError} when a worker died, now or before
   */
  run(job: Job): boolean | Promise<boolean>;
  /** Makes the running job end between two records. */
  cancel(): void;
  dispose(): Promise<void>;
}
