/** What a job store should do, in plain loops: the model of the property tests. */
import type { ClaimedJob, FailState, JobState, LeaseState } from '../src/index.js';

export interface ModelJob {
  readonly batch: string;
  readonly id: string;
  readonly index: number;
  readonly group: string;
  readonly queue: string;
  readonly priority: number;
  readonly maxAttempts: number;
  readonly expiresAt: number;
  state: JobState;
  attempts: number;
  lapses: number;
  isSuspect: boolean;
  availableAt: number;
  leaseUntil: number;
  holder: string | undefined;
  result: string | undefined;
}

export class ModelStore {
  readonly batches: string[] = [];
  jobs: ModelJob[] = [];
  now = 1_000_000;

  enqueue(
    batch: string,
    job: Pick<ModelJob, 'id' | 'index' | 'group' | 'queue' | 'priority' | 'maxAttempts' | 'expiresAt'>,
  ): void {
    if (!this.batches.includes(batch)) this.batches.push(batch);
    const isKnown = this.jobs.some(
      (other) => other.batch === batch && (other.id === job.id || other.index === job.index),
    );
    if (isKnown) return;
    const initial = {
      state: 'waiting',
      attempts: 0,
      lapses: 0,
      isSuspect: false,
      availableAt: 0,
      leaseUntil: 0,
    } as const;
    this.jobs.push({ ...job, ...initial, batch, holder: undefined, result: undefined });
  }

  sweep(): void {
    for (const job of this.jobs) {
      if (job.state === 'running' && job.leaseUntil <= this.now) {
        job.holder = undefined;
        job.state = job.attempts >= job.maxAttempts ? 'failed' : 'waiting';
        job.lapses++;
        job.isSuspect = job.lapses >= 2 || job.attempts === job.maxAttempts - 1;
      }
      if (job.state === 'waiting' && job.expiresAt <= this.now) job.state = 'expired';
    }
  }

  /** The next jobs, which the claim of the store must return. @param queues none: all */
  claim(limit: number, leaseMs: number, alone: boolean, queues: readonly string[]): ModelJob[] {
    this.sweep();
    const ordered = this.jobs
      .filter(
        ({ state, availableAt, queue }) =>
          state === 'waiting' && availableAt <= this.now && (queues.length === 0 || queues.includes(queue)),
      )
      .toSorted(
        (a, b) =>
          b.priority - a.priority ||
          this.batches.indexOf(a.batch) - this.batches.indexOf(b.batch) ||
          Number(a.isSuspect) - Number(b.isSuspect) ||
          (a.group < b.group ? -1 : a.group > b.group ? 1 : a.index - b.index),
      );
    const firstSuspect = ordered.findIndex(({ isSuspect }) => isSuspect);
    const numNormal = firstSuspect < 0 ? ordered.length : firstSuspect;
    const next = ordered.slice(0, numNormal === 0 && alone ? 1 : Math.min(limit, numNormal));
    for (const job of next) Object.assign(job, { state: 'running', leaseUntil: this.now + leaseMs });
    for (const job of next) job.attempts++;
    return next;
  }

  /** Records the holders that the store assigned. */
  hold(job: ModelJob, { token }: ClaimedJob): void {
    job.holder = token;
  }

  asHolder({ batchId, customId, token }: ClaimedJob, change: (job: ModelJob) => void): LeaseState {
    const job = this.jobs.find(({ batch, id }) => batch === batchId && id === customId);
    if (job?.state === 'canceled') return 'canceled';
    if (job === undefined || job.state !== 'running' || job.holder !== token) return 'lost';
    change(job);
    if (job.state !== 'running') job.holder = undefined;
    return 'held';
  }

  fail(claimed: ClaimedJob, retry: boolean, delayMs: number): FailState {
    let became: FailState = 'lost';
    const state = this.asHolder(claimed, (job) => {
      job.state = retry && job.attempts < job.maxAttempts ? 'waiting' : 'failed';
      job.availableAt = this.now + delayMs;
      became = job.state as FailState;
    });
    return state === 'held' ? became : state;
  }

  cancel(batch: string): number {
    this.sweep();
    const found = this.jobs.filter((job) => job.batch === batch && ['waiting', 'running'].includes(job.state));
    for (const job of found) job.state = 'canceled';
    return found.length;
  }

  /** What `queues` reports, without workers. */
  depths(): object[] {
    this.sweep();
    const names = [...new Set(this.jobs.map(({ queue }) => queue))].toSorted();
    const depths = names.map((queue) => {
      const count = (state: JobState): number =>
        this.jobs.filter((job) => job.queue === queue && job.state === state).length;
      return { queue, waiting: count('waiting'), running: count('running') };
    });
    return depths.filter(({ waiting, running }) => waiting + running > 0);
  }

  /** What `list` reports. */
  listed(batch: string): object[] {
    this.sweep();
    const own = this.jobs.filter((job) => job.batch === batch).toSorted((a, b) => a.index - b.index);
    return own.map(({ id, index, state, attempts, result }) => ({ id, index, state, attempts, result }));
  }
}
