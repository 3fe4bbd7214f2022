/** Runs jobs over a memory: on workers, or on the calling thread where memory cannot be shared. One job at a time. */

/** Records `[begin, end)` of the job block at `address`. */
export interface Job {
  readonly address: number;
  readonly begin: number;
  readonly end: number;
}

export interface Runner {
  readonly numThreads: number;
  /**
   * Resolves when the job ended or was cancelled on the way; true when all of its records ran.
   * @throws {BackendError} when a worker died, now or before
   */
  run(job: Job): Promise<boolean>;
  /** Makes the running job end between two records. */
  cancel(): void;
  dispose(): Promise<void>;
}
