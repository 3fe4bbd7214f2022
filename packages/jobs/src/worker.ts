/** The worker loop: claims as many jobs as can run at once, extends their leases, and records their outcomes. */
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { checkInteger, checkNumber, checkText } from './checks.js';
import type { ClaimedJob, ClaimOptions, FailOptions, JobError, JobStore } from './job-store.js';

/** Thrown by a handler: the error of the job, and whether another attempt could succeed. After other errors, the job is retried. */
export class JobFailure extends Error {
  override readonly name: string = 'JobFailure';
  readonly code: string;
  readonly detail: string | undefined;
  readonly options: FailOptions;

  /** @throws {ArgumentError} for a delay that is no number */
  constructor({ code, message, detail }: JobError, options: FailOptions = {}) {
    super(message);
    if (options.delayMs !== undefined) checkNumber('delayMs', options.delayMs);
    this.code = code;
    this.detail = detail;
    this.options = options;
  }
}

export interface JobContext {
  /** Aborted when the job is canceled or was claimed by another worker, or when the worker must stop. */
  readonly signal: AbortSignal;
  /** Reports progress with the next heartbeat. @param progress from 0 to 1 @throws {ArgumentError} for a progress that is no number */
  readonly report: (progress: number) => void;
}

/** @returns the result. @throws {JobFailure} */
export type JobHandler = (job: ClaimedJob, context: JobContext) => Promise<string>;

/**
 * Queues whose jobs share a resource of the worker, such as the sequences of a model. A suspect waits until all pools are idle; if
 * that takes long, the other pools stop claiming.
 */
export interface WorkerPool {
  readonly queues: readonly string[];
  /** Maximum number of jobs at once. */
  readonly concurrency: number;
}

export interface WorkerOptions {
  /** Name of the worker, for reports. */
  readonly name: string;
  /** Maximum number of jobs at once of all queues, or the queues to claim from. */
  readonly concurrency: number | readonly WorkerPool[];
  readonly handler: JobHandler;
  /** Time in milliseconds after which others may claim the jobs of a worker that disappeared. Default 30 000. */
  readonly leaseMs?: number;
  /** Interval in milliseconds at which the store is polled while there are no jobs. Default 500. */
  readonly pollMs?: number;
  /** Drain: no further job is claimed, and `runWorker` resolves when the running ones have ended. */
  readonly drain?: AbortSignal;
  /** Stop: running jobs are aborted and returned to the store. */
  readonly signal?: AbortSignal;
  /** Called while nothing runs and nothing could be claimed; true ends the worker. Default: it never ends. */
  readonly isDone?: () => Promise<boolean>;
  /** Called after each job. */
  readonly onEnd?: (job: ClaimedJob, outcome: JobOutcome) => void;
  /** Called when the store fails; the worker then retries. Default: the worker ends with the error. */
  readonly onStoreError?: (error: unknown) => void;
}

/** `retrying`: the job will be tried again. `given-back`: it was canceled, lost or returned. */
export type JobOutcome = 'completed' | 'failed' | 'retrying' | 'given-back';

const workerOptionNames: OptionNames<WorkerOptions> = {
  name: true,
  concurrency: true,
  handler: true,
  leaseMs: true,
  pollMs: true,
  drain: true,
  signal: true,
  isDone: true,
  onEnd: true,
  onStoreError: true,
};

/**
 * Runs until it is drained, aborted or done. When it resolves, none of its jobs runs.
 * @throws {ArgumentError} for invalid options; errors of the store
 */
export async function runWorker(store: JobStore, options: WorkerOptions): Promise<void> {
  checkOptions(options, workerOptionNames);
  const { leaseMs = 30_000, pollMs = 500 } = options;
  checkText('name', options.name);
  const pools = poolsOf(options.concurrency);
  checkInteger('leaseMs', leaseMs, 1);
  checkInteger('pollMs', pollMs, 1);
  await new Worker(store, { ...options, leaseMs, pollMs, pools }).run();
}

/** @throws {ArgumentError} */
function poolsOf(concurrency: WorkerOptions['concurrency']): Pool[] {
  if (typeof concurrency === 'number') {
    checkInteger('concurrency', concurrency, 1);
    return [{ queues: undefined, concurrency }];
  }
  const claimed = new Set<string>();
  return concurrency.map(({ queues, concurrency: maxJobs }, index) => {
    checkInteger(`concurrency[${index}].concurrency`, maxJobs, 1);
    for (const queue of queues) {
      if (claimed.has(queue)) {
        throw new ArgumentError({ argument: 'concurrency', expected: 'each queue once', actual: `'${queue}' twice` });
      }
      claimed.add(queue);
    }
    return { queues, concurrency: maxJobs };
  });
}

interface Pool {
  /** Undefined: all. */
  readonly queues: readonly string[] | undefined;
  readonly concurrency: number;
}

type ResolvedOptions = WorkerOptions &
  Required<Pick<WorkerOptions, 'leaseMs' | 'pollMs'>> & { readonly pools: readonly Pool[] };

interface RunningJob {
  readonly pool: Pool;
  readonly job: ClaimedJob;
  readonly controller: AbortController;
  progress: number;
  /** Whether the handler has ended, so that another job can run while the result is recorded. */
  isRecording: boolean;
}

/** A pool that got nothing this many times while others ran may have a suspect as its next job. */
const refusalsPerLook = 4;

/** Heartbeats per lease: two may be late. */
const heartbeatsPerLease = 3;

/** Jobs that end within this time in milliseconds are replaced by one claim. */
const gatherMs = 1;

class Worker {
  readonly #store: JobStore;
  readonly #options: ResolvedOptions;
  readonly #running = new Map<RunningJob, Promise<void>>();
  /** Ends the sleep of the loop. */
  #endSleep: () => void = () => {};
  /** Number of events so far that require another turn: a job ended, or the worker must stop. */
  #numWakes = 0;
  #failure: { readonly error: unknown } | undefined;
  /** Number of times that an idle pool got nothing while others ran. */
  readonly #refusals = new Map<Pool, number>();
  /** Idle pools that got nothing, which do not claim again just because a job of another pool ended. */
  readonly #resting = new Map<Pool, ReturnType<typeof setTimeout>>();
  /** A pool with a suspect, for which the other pools drain. */
  #suspected: Pool | undefined;

  constructor(store: JobStore, options: ResolvedOptions) {
    this.#store = store;
    this.#options = options;
  }

  async run(): Promise<void> {
    const { leaseMs, signal, drain } = this.#options;
    const onAbort = (): void => this.#abortAll();
    const onDrain = (): void => this.#wake();
    signal?.addEventListener('abort', onAbort);
    drain?.addEventListener('abort', onDrain);
    const timer = setInterval(() => void this.#heartbeats(), Math.ceil(leaseMs / heartbeatsPerLease));
    try {
      while (!this.#isEnding() && (await this.#turn()));
    } finally {
      if (signal?.aborted === true || this.#failure !== undefined) this.#abortAll();
      await Promise.all(this.#running.values());
      clearInterval(timer);
      for (const pool of [...this.#resting.keys()]) this.#endRest(pool);
      signal?.removeEventListener('abort', onAbort);
      drain?.removeEventListener('abort', onDrain);
    }
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  #isEnding(): boolean {
    const { signal, drain } = this.#options;
    return signal?.aborted === true || drain?.aborted === true || this.#failure !== undefined;
  }

  /** Claims as many jobs as fit, and waits for the next event. @returns false when everything is done */
  async #turn(): Promise<boolean> {
    const { pollMs, isDone, pools } = this.#options;
    const numWakes = this.#numWakes;
    for (const pool of pools) await this.#claim(pool);
    if (this.#running.size === 0 && isDone !== undefined && ((await this.#try(isDone)) ?? false)) return false;
    if (this.#numWakes === numWakes) await this.#sleep(pollMs);
    await new Promise((resolve) => setTimeout(resolve, gatherMs));
    return true;
  }

  async #claim(pool: Pool): Promise<void> {
    const { name: worker, leaseMs } = this.#options;
    const { queues, concurrency } = pool;
    const running = [...this.#running.keys()];
    if (running.some(({ job }) => job.isSuspect)) return;
    if (this.#suspected !== undefined && (this.#suspected !== pool || running.length > 0)) return;
    this.#suspected = undefined;
    const own = running.filter((each) => each.pool === pool);
    // limits the backlog when the store records more slowly than it hands out jobs
    const numRecorded = Math.min(concurrency, own.filter(({ isRecording }) => isRecording).length);
    const limit = concurrency - (own.length - numRecorded);
    if (limit <= 0 || this.#resting.has(pool)) return;
    const claim = { worker, leaseMs, limit, alone: running.length === 0, ...(queues === undefined ? {} : { queues }) };
    const jobs = (await this.#try(() => this.#store.claim(claim))) ?? [];
    for (const job of jobs) this.#start(job, pool);
    if (jobs.length === 0 && own.length === 0) this.#rest(pool);
    const isRefused = jobs.length === 0 && running.length > 0 && own.length === 0;
    this.#refusals.set(pool, isRefused ? (this.#refusals.get(pool) ?? 0) + 1 : 0);
    if (isRefused && (this.#refusals.get(pool) ?? 0) % refusalsPerLook === 0) await this.#look(pool, claim);
  }

  /** Looks for a suspect, which would otherwise wait, with the jobs behind it, as long as other pools have jobs. */
  async #look(pool: Pool, claim: ClaimOptions): Promise<void> {
    const [job] = (await this.#try(() => this.#store.claim({ ...claim, limit: 1, alone: true }))) ?? [];
    if (job === undefined) return;
    if (!job.isSuspect) return this.#start(job, pool);
    await this.#try(() => this.#store.release(job));
    this.#suspected = pool;
    this.#endRest(pool);
  }

  #rest(pool: Pool): void {
    this.#endRest(pool);
    this.#resting.set(
      pool,
      setTimeout(() => this.#resting.delete(pool), this.#options.pollMs),
    );
  }

  #endRest(pool: Pool): void {
    clearTimeout(this.#resting.get(pool));
    this.#resting.delete(pool);
  }

  #sleep(durationMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, durationMs);
      this.#endSleep = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #wake(): void {
    this.#numWakes++;
    this.#endSleep();
  }

  #start(job: ClaimedJob, pool: Pool): void {
    const running: RunningJob = { job, pool, controller: new AbortController(), progress: 0, isRecording: false };
    const ending = this.#runJob(running).finally(() => {
      this.#running.delete(running);
      this.#wake();
    });
    this.#running.set(running, ending);
    if (this.#options.signal?.aborted === true) this.#abortAll();
  }

  async #runJob(running: RunningJob): Promise<void> {
    const { job, controller } = running;
    const { signal } = controller;
    const report = (progress: number): void => {
      // the store would reject the heartbeat, which fails the worker instead of the job
      checkNumber('progress', progress);
      running.progress = progress;
    };
    const onEnd = (): void => {
      running.isRecording = true;
      this.#wake();
    };
    let outcome: JobOutcome;
    try {
      const result = await this.#options.handler(job, { signal, report }).finally(onEnd);
      const state = await this.#try(() => this.#store.complete(job, result));
      outcome = state === 'held' ? 'completed' : 'given-back';
    } catch (error) {
      outcome = signal.aborted ? await this.#giveBack(job) : await this.#recordFailure(job, error);
    }
    this.#options.onEnd?.(job, outcome);
  }

  async #giveBack(job: ClaimedJob): Promise<JobOutcome> {
    await this.#try(() => this.#store.release(job));
    return 'given-back';
  }

  async #recordFailure(job: ClaimedJob, error: unknown): Promise<JobOutcome> {
    const failure = error instanceof JobFailure ? error : undefined;
    const message = error instanceof Error ? error.message : String(error);
    const { code = 'internal_error', detail } = failure ?? {};
    const known: JobError = { code, message, ...(detail === undefined ? {} : { detail }) };
    const state = await this.#try(() => this.#store.fail(job, known, failure?.options));
    if (state === 'waiting') return 'retrying';
    return state === 'failed' ? 'failed' : 'given-back';
  }

  async #heartbeats(): Promise<void> {
    const { leaseMs } = this.#options;
    const beat = async ({ job, controller, progress }: RunningJob): Promise<void> => {
      const state = await this.#try(() => this.#store.heartbeat(job, leaseMs, progress));
      if (state === 'canceled' || state === 'lost') controller.abort(new Error(`the job was ${state}`));
    };
    await Promise.all([...this.#running.keys()].map(beat));
  }

  #abortAll(): void {
    for (const { controller } of this.#running.keys()) controller.abort(new Error('the worker ends'));
    this.#wake();
  }

  /** @returns undefined when the store fails: leases lapse, and the jobs are claimed again */
  async #try<T>(call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call();
    } catch (error) {
      const { onStoreError } = this.#options;
      if (onStoreError === undefined) {
        this.#failure ??= { error };
        this.#abortAll();
      } else onStoreError(error);
      return undefined;
    }
  }
}
