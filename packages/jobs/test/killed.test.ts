/** Worker processes that are repeatedly killed lose no job, and no job has two results. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sourceArguments } from '@winnow/test-utils';
import { afterAll, expect, it } from 'vitest';
import type { JobInfo, JobStore } from '../src/index.js';
import { openSqliteJobStore } from '../src/index.node.js';

const folder = mkdtempSync(join(tmpdir(), 'winnow-killed-jobs-'));
afterAll(() => rmSync(folder, { recursive: true }));

const log = join(folder, 'done.log');
const path = join(folder, 'jobs.db');
const numJobs = 300;
const numKills = 4;
/** More than the number of times that a job can lose its worker: by each kill, and once by the poison job next to it. */
const maxAttempts = numKills + 3;

/** Keeps a number of workers running, as a process manager does: another one replaces each that is killed. */
class Supervisor {
  readonly #workers = new Set<ChildProcess>();
  readonly #ended: Promise<unknown>[] = [];
  numStarted = 0;

  start(): void {
    const script = new URL('worker-process.ts', import.meta.url);
    const stdio = ['ignore', 'ignore', 'inherit', 'ipc'] as const;
    const worker = fork(script, [path, log], { execArgv: [...sourceArguments], stdio: [...stdio] });
    this.numStarted++;
    this.#workers.add(worker);
    const exit = once(worker, 'exit').then(([, signal]) => {
      this.#workers.delete(worker);
      if (signal === 'SIGKILL') this.start();
    });
    this.#ended.push(exit);
  }

  killOldest(): void {
    const [oldest] = this.#workers;
    oldest?.kill('SIGKILL');
  }

  /** Waits until all workers have ended by themselves. */
  async ended(): Promise<void> {
    for (let count = 0; count < this.#ended.length; count++) await this.#ended[count];
  }
}

async function listAll(store: JobStore): Promise<JobInfo[]> {
  return store.list('batch', { limit: numJobs + 1 });
}

it.skipIf(process.platform === 'win32')('survives SIGKILL', async () => {
  const store = await openSqliteJobStore(path);
  const ids = Array.from({ length: numJobs }, (_, index) => (index === 40 ? 'poison' : `job-${index}`));
  await store.enqueue(
    'batch',
    ids.map((customId, index) => ({ customId, index, payload: customId })),
    {
      maxAttempts,
    },
  );
  const supervisor = new Supervisor();
  supervisor.start();
  supervisor.start();
  let numKilled = 0;
  // after each share of the jobs a worker is killed
  for await (const { event } of store.events({ batchId: 'batch', after: 0, signal: AbortSignal.timeout(100_000) })) {
    if (event !== 'completed' && event !== 'failed') continue;
    const { waiting, running, completed } = await store.counts('batch');
    if (waiting + running === 0) break;
    if (numKilled === numKills || completed < ((numKilled + 1) * numJobs) / (numKills + 2)) continue;
    supervisor.killOldest();
    numKilled++;
  }
  await supervisor.ended();
  expect(numKilled).toBe(numKills);
  // the poison job has killed one with each attempt
  expect(supervisor.numStarted).toBeGreaterThanOrEqual(2 + maxAttempts);

  const infos = await listAll(store);
  expect(infos.map(({ customId }) => customId)).toEqual(ids);
  const [poison] = infos.splice(40, 1);
  // it killed each worker that tried it, and no other job failed for it
  expect(poison).toMatchObject({ state: 'failed', attempts: maxAttempts, error: { code: 'lease_lapsed' } });
  const wrong = infos.filter(
    ({ state, result, customId }) => state !== 'completed' || result !== customId.toUpperCase(),
  );
  expect(wrong).toEqual([]);
  const done = readFileSync(log, 'utf8').trimEnd().split('\n');
  expect(new Set(done)).toEqual(new Set(ids.filter((id) => id !== 'poison')));
  await store.close();
});
