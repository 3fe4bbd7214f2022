/**
 * The contract of job stores: queues of jobs that outlive the processes that run them. Delivery is at least once, and a job
 * has one result: the first one that its holder records. Times are milliseconds since 1970.
 */

/**
 * `waiting` jobs can be claimed (after a delay, if they failed before); `running` jobs have a holder. The other states are
 * final.
 */
export type JobState = 'waiting' | 'running' | 'completed' | 'failed' | 'canceled' | 'expired';

export const jobStates: readonly JobState[] = ['waiting', 'running', 'completed', 'failed', 'canceled', 'expired'];

/** Usual priorities: jobs that a user waits for come first. Any other integers work, too. */
export const jobPriorities: { readonly interactive: number; readonly batch: number } = { interactive: 10, batch: 0 };

export interface NewJob {
  /** Identifies the job within its batch: a job with a known id is not added again. */
  readonly customId: string;
  /** Position within its batch, such as its line: unique, from 0. */
  readonly index: number;
  /** The work to do, as text that the worker understands. */
  readonly payload: string;
  /**
   * Jobs of a batch are claimed in the order of their groups, then of their positions, so that consecutive jobs can share
   * work, such as a cached prefix. Default: the empty string.
   */
  readonly group?: string;
  /** Queue from which it is claimed. Default: the queue of the call. */
  readonly queue?: string;
  /** Adds the job as failed, for an invalid input. Default: the job waits. */
  readonly error?: JobError;
}

export interface EnqueueOptions {
  /** Queue of the jobs, such as the name of the model that they need. Default `default`. */
  readonly queue?: string;
  /** Jobs of a higher priority are claimed first. Default `jobPriorities.batch`. */
  readonly priority?: number;
  /** Number of claims after which a job that did not complete has failed. Default 3. */
  readonly maxAttempts?: number;
  /** Time after which the jobs can no longer be claimed. Default: none. */
  readonly expiresAtMs?: number;
}

export interface Enqueued {
  readonly numAdded: number;
  /** Positions of jobs that were not added because a job at another position of the batch has the same id. */
  readonly conflicts: readonly number[];
}

export interface ClaimOptions {
  /** Name of the worker, for reports. */
  readonly worker: string;
  /** Time in milliseconds after which another worker may claim the job, unless the holder extends it. */
  readonly leaseMs: number;
  /** Maximum number of jobs. Default 1. */
  readonly limit?: number;
  /** Queues to claim from. Default: all. */
  readonly queues?: readonly string[];
  /**
   * Whether the worker runs nothing else: only then can it get a suspect, which it then gets alone. Default true.
   */
  readonly alone?: boolean;
}

/** A job with a holder: whoever has the token, until another one claims the job. */
export interface ClaimedJob {
  readonly batchId: string;
  readonly customId: string;
  readonly index: number;
  readonly queue: string;
  readonly payload: string;
  /** Number of this claim, from 1. */
  readonly attempt: number;
  /**
   * Whether its workers disappeared twice, or before its last attempt. The job may be the cause, so it is claimed after the
   * others of its batch, and its worker should run nothing else meanwhile, which would fail with it.
   */
  readonly isSuspect: boolean;
  readonly token: string;
}

export interface JobError {
  /** Machine-readable code, such as `lease_lapsed`. */
  readonly code: string;
  readonly message: string;
  /** Further machine-readable information. */
  readonly detail?: string;
}

export interface FailOptions {
  /** Whether another attempt could succeed. Default true. */
  readonly retry?: boolean;
  /** Minimum delay of the next attempt in milliseconds. Default: `retryDelayMs`. */
  readonly delayMs?: number;
}

/** Whether the job still belongs to the caller, or why not. */
export type LeaseState = 'held' | 'canceled' | 'lost';

/** The state of a job after a failure: it waits for the next attempt, or has failed for good. */
export type FailState = 'waiting' | 'failed' | 'canceled' | 'lost';

export interface JobInfo {
  readonly batchId: string;
  readonly customId: string;
  readonly index: number;
  readonly state: JobState;
  /** Number of claims so far. */
  readonly attempts: number;
  /** Progress that the last heartbeat reported, from 0 to 1. */
  readonly progress: number;
  readonly worker?: string;
  /** The result of a completed job. */
  readonly result?: string;
  /** The error of a failed job, or of a waiting one that failed before. */
  readonly error?: JobError;
  readonly startedAtMs?: number;
  readonly endedAtMs?: number;
}

/** The waiting and running jobs of a queue. */
export interface QueueInfo {
  readonly queue: string;
  readonly waiting: number;
  readonly running: number;
  /** Workers that run its jobs, by name. */
  readonly workers: readonly { readonly name: string; readonly running: number }[];
}

export interface ListOptions {
  /** Default: all. */
  readonly states?: readonly JobState[];
  /** Only jobs at later positions. Default -1. */
  readonly after?: number;
  /** Default 100. */
  readonly limit?: number;
}

export type JobCounts = Readonly<Record<JobState, number>>;

/** A job entered a state, or reported progress. */
export interface JobEvent {
  /** Increases with each event of a store. */
  readonly sequence: number;
  readonly batchId: string;
  readonly customId: string;
  readonly event: JobState | 'progress';
  readonly atMs: number;
}

export interface EventOptions {
  /** Default: of all batches. */
  readonly batchId?: string;
  /** Only events after this sequence number. Default: events from now on. */
  readonly after?: number;
  /** Ends the events. */
  readonly signal: AbortSignal;
}

export interface JobStore {
  /**
   * Adds jobs to a batch; the first job creates it. A call adds all of its jobs or none.
   * @throws {ArgumentError} for an invalid job, or two jobs with the same position
   */
  enqueue(batchId: string, jobs: readonly NewJob[], options?: EnqueueOptions): Promise<Enqueued>;
  /**
   * Claims the next jobs, by priority, then batches in the order in which they were created. Jobs whose lease has lapsed are
   * claimed again, or fail after their last attempt.
   */
  claim(options: ClaimOptions): Promise<ClaimedJob[]>;
  /** Extends a lease. @param progress from 0 to 1 @throws {ArgumentError} for numbers that are none */
  heartbeat(job: ClaimedJob, leaseMs: number, progress?: number): Promise<LeaseState>;
  /** Records the result. Returns `lost` when another worker has claimed the job or recorded its result. */
  complete(job: ClaimedJob, result: string): Promise<LeaseState>;
  /**
   * Records a failure; the job waits for the next attempt while there are attempts left.
   * @throws {ArgumentError} for a delay that is no number
   */
  fail(job: ClaimedJob, error: JobError, options?: FailOptions): Promise<FailState>;
  /** Returns a job that was not tried. The attempt does not count. */
  release(job: ClaimedJob): Promise<LeaseState>;
  /** Cancels all jobs of a batch that have not ended. @returns their number */
  cancel(batchId: string): Promise<number>;
  /** Jobs of a batch by position. An unknown batch has none. */
  list(batchId: string, options?: ListOptions): Promise<JobInfo[]>;
  counts(batchId: string): Promise<JobCounts>;
  /** Queues with jobs that wait or run, by name. */
  queues(): Promise<QueueInfo[]>;
  /** Ids of the batches, in the order in which they were created. */
  batches(): Promise<string[]>;
  /** Deletes a batch, its results and its events. @returns whether it existed */
  remove(batchId: string): Promise<boolean>;
  /** Events as they happen, in any process. */
  events(options: EventOptions): AsyncIterable<JobEvent>;
  /** Closes the store; jobs remain. May be called more than once. */
  close(): Promise<void>;
}

/** The delay after `attempt` failed attempts: 1 s, doubled with each, at most 5 minutes. */
export function retryDelayMs(attempt: number): number {
  return Math.min(300_000, 1000 * 2 ** (attempt - 1));
}

/** The error of a job whose last worker disappeared. */
export const lapsedError: JobError = {
  code: 'lease_lapsed',
  message: 'each worker that tried it stopped or stalled',
};

export function noCounts(): Record<JobState, number> {
  return { waiting: 0, running: 0, completed: 0, failed: 0, canceled: 0, expired: 0 };
}
