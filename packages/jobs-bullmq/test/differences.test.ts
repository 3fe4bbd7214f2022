/** Any interleaving of calls has the same results in Redis, in PostgreSQL and in a SQLite file, whose own tests compare it with a model. */
import type { ClaimedJob, JobInfo, JobStore } from '@winnow/jobs';
import { openSqliteJobStore } from '@winnow/jobs/node';
import { postgresProgram, redisProgram, startPostgresServer, startRedisServer } from '@winnow/test-utils';
import fc from 'fast-check';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openRedisJobStore } from '../src/index.node.js';
import { openPostgresJobStore } from '../src/postgres.node.js';

interface Pair {
  readonly stores: readonly [tested: JobStore, sqlite: JobStore];
  /** The same jobs, with the tokens of each store. */
  readonly claimed: (readonly [ClaimedJob, ClaimedJob])[];
  now: number;
}

type Step = (pair: Pair) => Promise<void>;

const leaseMs = 100;
const batch = fc.constantFrom('alpha', 'beta');

/** @returns the answers of both stores */
async function both<T>(
  pair: Pair,
  act: (store: JobStore, which: 0 | 1) => Promise<T>,
): Promise<[tested: T, sqlite: T]> {
  return [await act(pair.stores[0], 0), await act(pair.stores[1], 1)];
}

async function same<T>(pair: Pair, act: (store: JobStore, which: 0 | 1) => Promise<T>): Promise<void> {
  const [tested, sqlite] = await both(pair, act);
  expect(tested).toEqual(sqlite);
}

function enqueue(): fc.Arbitrary<Step> {
  const job = fc.record({
    customId: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
    group: fc.constantFrom('', 'g', 'ä'),
    queue: fc.constantFrom('one', 'two', undefined),
    isBroken: fc.boolean(),
  });
  const options = fc.record({
    priority: fc.constantFrom(0, 10, -3),
    maxAttempts: fc.integer({ min: 1, max: 3 }),
    expiresInMs: fc.constantFrom(undefined, 150),
  });
  const jobs = fc.array(job, { minLength: 1, maxLength: 4 });
  return fc.tuple(batch, fc.nat(6), jobs, options).map(([name, start, each, { expiresInMs, ...queued }]) => (pair) => {
    const added = each.map(({ isBroken, queue, ...rest }, i) => ({
      ...rest,
      ...{ index: start + i, payload: `${i}` },
      ...(queue === undefined ? {} : { queue }),
      ...(isBroken && i === 0 ? { error: { code: 'bad', message: 'line', detail: '' } } : {}),
    }));
    const expiry = expiresInMs === undefined ? {} : { expiresAtMs: pair.now + expiresInMs };
    return same(pair, (store) => store.enqueue(name, added, { ...queued, ...expiry }));
  });
}

function claim(): fc.Arbitrary<Step> {
  const options = fc.record({
    limit: fc.integer({ min: 1, max: 3 }),
    alone: fc.boolean(),
    queues: fc.constantFrom(undefined, ['two'], ['two', 'one'], ['default']),
    worker: fc.constantFrom('w-1', 'w-2'),
  });
  return options.map(({ queues, ...rest }) => async (pair) => {
    const wanted = { ...rest, leaseMs, ...(queues === undefined ? {} : { queues }) };
    const [tested, sqlite] = await both(pair, (store) => store.claim(wanted));
    const factsOf = (jobs: readonly ClaimedJob[]): object[] => jobs.map(({ token: _token, ...facts }) => facts);
    expect(factsOf(tested)).toEqual(factsOf(sqlite));
    tested.forEach((job, i) => pair.claimed.push([job, sqlite[i] as ClaimedJob]));
  });
}

function holder(act: (store: JobStore, job: ClaimedJob) => Promise<string>): fc.Arbitrary<Step> {
  return fc.nat(1000).map((number) => async (pair) => {
    const jobs = pair.claimed[number % Math.max(1, pair.claimed.length)];
    if (jobs !== undefined) await same(pair, (store, which) => act(store, jobs[which]));
  });
}

const steps: fc.Arbitrary<Step> = fc.oneof(
  { arbitrary: enqueue(), weight: 3 },
  { arbitrary: claim(), weight: 4 },
  holder((store, job) => store.complete(job, `result of ${job.attempt}`)),
  holder((store, job) => store.fail(job, { code: 'oops', message: 'x', detail: 'y' }, { delayMs: 50 })),
  holder((store, job) => store.fail(job, { code: 'oops', message: 'x' }, { retry: false })),
  holder((store, job) => store.heartbeat(job, leaseMs, 0.5)),
  holder((store, job) => store.release(job)),
  batch.map(
    (name): Step =>
      (pair) =>
        same(pair, (store) => store.cancel(name)),
  ),
  batch.map(
    (name): Step =>
      (pair) =>
        same(pair, (store) => store.remove(name)),
  ),
  fc.constantFrom(10, 60, 120).map((durationMs): Step => async (pair) => {
    pair.now += durationMs;
  }),
);

/** The times of Redis are rounded to microseconds; here they are whole milliseconds. */
async function compare(pair: Pair): Promise<void> {
  await same(pair, (store) => store.batches());
  await same(pair, (store) => store.queues());
  for (const name of ['alpha', 'beta']) {
    await same<JobInfo[]>(pair, (store) => store.list(name));
    await same(pair, (store) => store.list(name, { states: ['failed', 'completed'], after: 1, limit: 2 }));
    await same(pair, (store) => store.counts(name));
  }
}

interface Tested {
  readonly numRuns: number;
  readonly program: string | undefined;
  start(): Promise<{ readonly url: string; stop(): Promise<void> }>;
  open(url: string, place: string, now: () => number): Promise<JobStore>;
}

const redis: Tested = {
  numRuns: 60,
  program: redisProgram,
  start: startRedisServer,
  open: (url, prefix, now) => openRedisJobStore(url, { prefix, now }),
};
const postgres: Tested = {
  numRuns: 20,
  program: postgresProgram,
  start: startPostgresServer,
  open: (url, schema, now) => openPostgresJobStore(url, { schema, now }),
};

describe.each([
  ['redis-server', redis],
  ['postgres', postgres],
] as const)('with %s', (_name, { numRuns, program, start, open }) => {
  it.skipIf(program === undefined)('does what the store in a file does', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'winnow-differences-'));
    const server = await start();
    let number = 0;
    const compareRuns = fc.asyncProperty(fc.array(steps, { minLength: 5, maxLength: 40 }), async (chosen) => {
      const clock = { now: 1_000_000 };
      const now = (): number => pair.now;
      const place = `run_${number++}`;
      const tested = await open(server.url, place, now);
      const sqlite = await openSqliteJobStore(join(folder, `${place}.db`), { now });
      const pair: Pair = { stores: [tested, sqlite], claimed: [], ...clock };
      try {
        for (const step of chosen) {
          await step(pair);
          await compare(pair);
        }
      } finally {
        await tested.close();
        await sqlite.close();
      }
    });
    try {
      await fc.assert(compareRuns, { numRuns });
    } finally {
      await server.stop();
      rmSync(folder, { recursive: true });
    }
  });
});
