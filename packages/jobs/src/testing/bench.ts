/** What the tests of the job store suite use. */
import type { ClaimedJob, JobStore, NewJob } from '../job-store.js';

/** One place of jobs, for one test. */
export interface Bench {
  readonly leaseMs: number;
  /** Opens the place of this test. */
  open(): Promise<JobStore>;
  /** Lets time pass. */
  elapse(durationMs: number): Promise<void>;
  now(): number;
}

export type UseBench = () => Bench;

export function jobsOf(ids: readonly string[], fields: Partial<NewJob> = {}): NewJob[] {
  return ids.map((customId, index) => ({ customId, index, payload: `do ${customId}`, ...fields }));
}

/** Claims until nothing is left. */
export async function claimAll(store: JobStore, worker = 'worker', leaseMs = 60_000): Promise<ClaimedJob[]> {
  const claimed: ClaimedJob[] = [];
  for (;;) {
    const jobs = await store.claim({ worker, leaseMs, limit: 7 });
    if (jobs.length === 0) return claimed;
    claimed.push(...jobs);
  }
}

/** Claims one job. @throws {Error} when there is none */
export async function claimOne(store: JobStore, leaseMs: number, worker = 'worker'): Promise<ClaimedJob> {
  const [job] = await store.claim({ worker, leaseMs });
  if (job === undefined) throw new Error('expected a job, got none');
  return job;
}
