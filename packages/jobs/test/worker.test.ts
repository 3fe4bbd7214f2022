/** The worker loop, on a store in a file. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, expect, it } from 'vitest';
import { JobFailure, runWorker, type JobContext, type JobStore, type WorkerOptions } from '../src/index.js';
import { openSqliteJobStore } from '../src/index.node.js';

const folder = mkdtempSync(join(tmpdir(), 'winnow-worker-'));
afterAll(() => rmSync(folder, { recursive: true }));

let store: JobStore;
let number = 0;
beforeEach(async () => {
  store = await openSqliteJobStore(join(folder, `${number++}.db`));
});
afterEach(() => store.close());

const enqueue = (...ids: readonly string[]): Promise<unknown> =>
  store.enqueue(
    'batch',
    ids.map((customId, index) => ({ customId, index, payload: customId })),
  );

const isDone = async (): Promise<boolean> => {
  const { waiting, running } = await store.counts('batch');
  return waiting + running === 0;
};

function work(handler: WorkerOptions['handler'], options: Partial<WorkerOptions> = {}): Promise<void> {
  return runWorker(store, { name: 'worker', concurrency: 3, pollMs: 5, handler, isDone, ...options });
}

/** Resolves when the job is aborted. */
const aborted = ({ signal }: JobContext): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));

it('runs as many jobs at once as allowed, and records their results', async () => {
  await enqueue('a', 'b', 'c', 'd', 'e', 'f', 'g');
  let [numRunning, maxRunning] = [0, 0];
  await work(async ({ payload }) => {
    maxRunning = Math.max(maxRunning, ++numRunning);
    await new Promise((resolve) => setTimeout(resolve, 2));
    numRunning--;
    return payload.toUpperCase();
  });
  expect(maxRunning).toBe(3);
  expect((await store.list('batch')).map(({ result }) => result)).toEqual(['A', 'B', 'C', 'D', 'E', 'F', 'G']);
});

it('runs the next job while a result is recorded', async () => {
  await enqueue('a', 'b', 'c');
  let started = (): void => {};
  const next = new Promise<void>((resolve) => (started = resolve));
  const late: JobStore = {
    ...bound(store),
    async complete(job, result) {
      if (job.customId === 'a') await next;
      return store.complete(job, result);
    },
  };
  const handler = async ({ customId }: { readonly customId: string }): Promise<string> => {
    if (customId === 'b') started();
    return '';
  };
  await runWorker(late, { name: 'worker', concurrency: 1, pollMs: 5, handler, isDone });
  expect(await store.counts('batch')).toMatchObject({ completed: 3 });
});

it('does not claim for an idle pool whenever a job of another pool ends', async () => {
  await enqueue(...Array.from({ length: 30 }, (_, index) => `${index}`));
  const asked: string[] = [];
  const counting: JobStore = {
    ...bound(store),
    claim(options) {
      asked.push(...(options.queues ?? []));
      return store.claim(options);
    },
  };
  const pools = ['default', 'idle'].map((queue) => ({ queues: [queue], concurrency: 1 }));
  const handler = async (): Promise<string> => '';
  await runWorker(counting, { name: 'worker', concurrency: pools, pollMs: 60_000, handler, isDone });
  expect(asked.filter((queue) => queue === 'default').length).toBeGreaterThanOrEqual(30);
  expect(asked.filter((queue) => queue === 'idle')).toHaveLength(1);
});

it('isolates jobs that fail, with their errors', async () => {
  await enqueue('bad', 'good', 'flaky');
  const outcomes: string[] = [];
  let numTries = 0;
  await work(
    async ({ customId, attempt }) => {
      if (customId === 'bad') throw new JobFailure({ code: 'bad_line', message: 'no prompt' }, { retry: false });
      if (customId === 'flaky' && attempt < 2) throw new JobFailure({ code: 'busy', message: 'later' }, { delayMs: 1 });
      numTries++;
      return 'done';
    },
    { onEnd: ({ customId }, outcome) => outcomes.push(`${customId} ${outcome}`) },
  );
  expect((await store.list('batch')).map(({ state }) => state)).toEqual(['failed', 'completed', 'completed']);
  expect((await store.list('batch'))[0]?.error).toEqual({ code: 'bad_line', message: 'no prompt' });
  expect(numTries).toBe(2);
  expect(outcomes.toSorted()).toEqual(['bad failed', 'flaky completed', 'flaky retrying', 'good completed']);
});

it('runs as many jobs of each pool as allowed, and claims from no other queue', async () => {
  await store.enqueue('other', [{ customId: 'a', index: 0, payload: '' }], { queue: 'unknown' });
  const jobs = Array.from({ length: 12 }, (_, index) => ({ customId: `${index}`, index, payload: '' }));
  await store.enqueue(
    'batch',
    jobs.map((job) => ({ ...job, queue: ['small', 'large', 'also-large'][job.index % 3] as string })),
  );
  const running: Record<string, number> = {};
  const most: Record<string, number> = {};
  const concurrency = [
    { queues: ['small'], concurrency: 1 },
    { queues: ['large', 'also-large'], concurrency: 3 },
  ];
  await work(
    async ({ queue }) => {
      const pool = queue === 'small' ? 'small' : 'large';
      running[pool] = (running[pool] ?? 0) + 1;
      most[pool] = Math.max(most[pool] ?? 0, running[pool]);
      await new Promise((resolve) => setTimeout(resolve, 2));
      running[pool]--;
      return '';
    },
    { concurrency },
  );
  expect(most).toEqual({ small: 1, large: 3 });
  expect(await store.counts('other')).toMatchObject({ waiting: 1 });
  const twice = [...concurrency, { queues: ['small'], concurrency: 1 }];
  await expect(work(async () => '', { concurrency: twice })).rejects.toThrow(
    /expected each queue once, got 'small' twice/,
  );
});

it('runs a suspect of one pool while all pools are idle', async () => {
  await store.enqueue('batch', [{ customId: 'suspect', index: 0, payload: '', queue: 'one' }]);
  for (let lapse = 0; lapse < 2; lapse++) {
    await store.claim({ worker: 'gone', leaseMs: 1 });
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const jobs = Array.from({ length: 6 }, (_, index) => ({ customId: `${index}`, index: index + 1, payload: '' }));
  await store.enqueue('batch', jobs, { queue: 'two' });
  const concurrency = [
    { queues: ['two'], concurrency: 2 },
    { queues: ['one'], concurrency: 2 },
  ];
  const running = new Set<string>();
  const beside: string[] = [];
  await work(
    async ({ customId, isSuspect }) => {
      running.add(customId);
      if (running.has('suspect')) beside.push(...running);
      if (isSuspect) await store.enqueue('batch', [{ customId: 'late', index: 7, payload: '' }], { queue: 'two' });
      await new Promise((resolve) => setTimeout(resolve, isSuspect ? 50 : 2)); // long enough to look for jobs
      running.delete(customId);
      return '';
    },
    { concurrency },
  );
  expect(beside).toEqual(['suspect']);
});

it('runs a suspect although another pool always has jobs', async () => {
  const suspects = ['suspect', 'behind'].map((customId, index) => ({ customId, index, payload: '', queue: 'one' }));
  await store.enqueue('batch', suspects);
  for (let lapse = 0; lapse < 2; lapse++) {
    await store.claim({ worker: 'gone', leaseMs: 1, limit: 2 });
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const drain = new AbortController();
  let [index, numRunning] = [0, 0]; // 600 jobs take longer than both suspects have to wait
  let endLast: (ended?: unknown) => void = () => undefined;
  const more = (): Promise<unknown> =>
    store.enqueue('endless', [{ customId: `${index}`, index: index++, payload: '' }], { queue: 'two' });
  for (let i = 0; i < 4; i++) await more();
  const ended: string[] = [];
  await work(
    async ({ customId, isSuspect }) => {
      numRunning++;
      if (isSuspect) ended.push(`${customId} beside ${numRunning - 1}`);
      endLast(); // a job ends when the next one begins, so that one always runs unless the worker claims none
      const next = new Promise((resolve) => (endLast = resolve));
      await more();
      await Promise.race([next, new Promise((resolve) => setTimeout(resolve, 50))]);
      numRunning--;
      if (ended.length === 2 || index > 600) drain.abort();
      return '';
    },
    {
      drain: drain.signal,
      concurrency: [
        { queues: ['two'], concurrency: 2 },
        { queues: ['one'], concurrency: 2 },
      ],
    },
  );
  expect(ended).toEqual(['suspect beside 0', 'behind beside 0']);
});

it('drains: finishes what runs and claims nothing more', async () => {
  await enqueue('a', 'b', 'c', 'd');
  const drain = new AbortController();
  await work(
    async () => {
      drain.abort();
      await new Promise((resolve) => setTimeout(resolve, 5));
      return 'done';
    },
    { concurrency: 2, drain: drain.signal },
  );
  expect(await store.counts('batch')).toMatchObject({ completed: 2, waiting: 2, running: 0 });
});

it('returns what runs when it is aborted', async () => {
  await enqueue('a', 'b', 'c');
  const ending = new AbortController();
  const outcomes: string[] = [];
  const ended = work((_job, context) => aborted(context), {
    concurrency: 2,
    signal: ending.signal,
    onEnd: (_job, outcome) => outcomes.push(outcome),
  });
  const running = store.events({ after: 0, signal: AbortSignal.timeout(10_000) });
  for await (const { event } of running) if (event === 'running') break;
  ending.abort();
  await ended;
  expect(await store.counts('batch')).toMatchObject({ waiting: 3, running: 0 });
  expect((await store.list('batch')).map(({ attempts }) => attempts)).toEqual([0, 0, 0]);
  expect(outcomes).toEqual(['given-back', 'given-back']);
});

it('keeps the leases of long jobs, and stops canceled ones', async () => {
  await enqueue('long');
  let numHeld = 0;
  const ended = work(
    async (_job, context) => {
      context.report(0.5);
      numHeld++;
      return aborted(context);
    },
    { leaseMs: 900 },
  );
  let numBeats = 0;
  for await (const { event } of store.events({ after: 0, signal: AbortSignal.timeout(10_000) })) {
    if (event === 'progress' && ++numBeats === 4) break; // longer than a lease
  }
  expect((await store.list('batch'))[0]).toMatchObject({ state: 'running', attempts: 1, progress: 0.5 });
  await store.cancel('batch');
  await ended;
  expect(numHeld).toBe(1);
  expect((await store.list('batch'))[0]).toMatchObject({ state: 'canceled' });
});

it('fails the job whose handler reports no number, and no other', async () => {
  await enqueue('bad', 'good', 'late');
  const handler: WorkerOptions['handler'] = async ({ customId }, { report }) => {
    if (customId === 'late') throw new JobFailure({ code: 'busy', message: 'later' }, { delayMs: Number.NaN });
    report(customId === 'bad' ? Number.NaN : 1);
    // a heartbeat comes first
    await new Promise((resolve) => setTimeout(resolve, 350));
    return '';
  };
  const leaseMs = 900;
  await work(handler, { leaseMs, isDone: async () => (await store.counts('batch')).completed === 1 });
  const [bad, good, late] = await store.list('batch');
  expect(bad).toMatchObject({ state: 'waiting', error: { message: 'progress: expected a number, got NaN' } });
  expect(good).toMatchObject({ state: 'completed' });
  expect(late).toMatchObject({ state: 'waiting', error: { message: 'delayMs: expected a number, got NaN' } });
});

it('ends with an error of the store, unless it is handled', async () => {
  await enqueue('a');
  const broken: JobStore = { ...bound(store), claim: () => Promise.reject(new Error('no disk')) };
  await expect(runWorker(broken, { name: 'w', concurrency: 1, handler: async () => '' })).rejects.toThrow('no disk');
  let numErrors = 0;
  const drain = new AbortController();
  const onStoreError = (): void => {
    if (++numErrors === 3) drain.abort();
  };
  const options = { name: 'w', concurrency: 1, handler: async () => '', pollMs: 1, onStoreError, drain: drain.signal };
  await runWorker(broken, options);
  expect(numErrors).toBe(3);
});

/** The methods of a store, of which a test replaces some. */
function bound(each: JobStore): JobStore {
  return new Proxy({} as JobStore, {
    ownKeys: () => ['claim', 'counts', 'heartbeat', 'complete', 'fail', 'release'],
    getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }),
    get: (_target, name: keyof JobStore) => each[name].bind(each),
  });
}
