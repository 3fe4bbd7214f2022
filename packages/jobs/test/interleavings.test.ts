/** Any interleaving of calls of several users of one store has the results of the model. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, expect, it } from 'vitest';
import type { ClaimedJob, JobStore } from '../src/index.js';
import { openSqliteJobStore } from '../src/index.node.js';
import { ModelStore } from './model-store.js';

const folder = mkdtempSync(join(tmpdir(), 'winnow-interleavings-'));
afterAll(() => rmSync(folder, { recursive: true }));

interface Real {
  readonly users: JobStore[];
  readonly claimed: ClaimedJob[];
}

const leaseMs = 100;
const batches = ['alpha', 'beta'] as const;

/** One call, on the store and on the model. */
type Step = (model: ModelStore, real: Real) => Promise<void>;

const user = fc.nat(1);
const batch = fc.constantFrom(...batches);
const pick = fc.nat(1000);

function enqueue(): fc.Arbitrary<Step> {
  const fields = fc.record({
    ids: fc.array(fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f'), { minLength: 1, maxLength: 4 }),
    start: fc.nat(6),
    group: fc.constantFrom('', 'g', 'h'),
    queue: fc.constantFrom('one', 'two'),
    priority: fc.constantFrom(0, 10),
    maxAttempts: fc.integer({ min: 1, max: 3 }),
    expiresInMs: fc.constantFrom(150, 10_000),
  });
  return fc.tuple(user, batch, fields).map(([who, name, each]) => async (model, { users }) => {
    const { ids, start, group, queue, priority, maxAttempts, expiresInMs } = each;
    const expiresAt = model.now + expiresInMs;
    const jobs = ids.map((customId, i) => ({ customId, index: start + i, payload: customId, group, queue }));
    await users[who]?.enqueue(name, jobs, { priority, maxAttempts, expiresAtMs: expiresAt });
    for (const { customId: id, index } of jobs)
      model.enqueue(name, { id, index, group, queue, priority, maxAttempts, expiresAt });
  });
}

function claim(): fc.Arbitrary<Step> {
  const claims = fc.tuple(
    user,
    fc.integer({ min: 1, max: 3 }),
    fc.boolean(),
    fc.constantFrom([], ['two'], ['two', 'one']),
  );
  return claims.map(([who, limit, alone, queues]) => async (model, { users, claimed }) => {
    const expected = model.claim(limit, leaseMs, alone, queues);
    const options = { worker: `user-${who}`, leaseMs, limit, alone, ...(queues.length === 0 ? {} : { queues }) };
    const jobs = (await users[who]?.claim(options)) ?? [];
    expect(jobs.map(({ isSuspect }) => isSuspect)).toEqual(expected.map(({ isSuspect }) => isSuspect));
    expect(jobs.map(({ batchId, customId, attempt }) => [batchId, customId, attempt])).toEqual(
      expected.map((job) => [job.batch, job.id, job.attempts]),
    );
    expected.forEach((job, i) => model.hold(job, jobs[i] as ClaimedJob));
    claimed.push(...jobs);
  });
}

/** A call with any job that was ever claimed, also by another user. */
function withClaimed(
  act: (store: JobStore, job: ClaimedJob) => Promise<string>,
  expected: (model: ModelStore, job: ClaimedJob) => string,
): fc.Arbitrary<Step> {
  return fc.tuple(user, pick).map(([who, number]) => async (model, { users, claimed }) => {
    const job = claimed[number % Math.max(1, claimed.length)];
    if (job === undefined) return;
    expect(await act(users[who] as JobStore, job)).toBe(expected(model, job));
  });
}

const failure = { code: 'oops', message: 'it broke' };
const resultOf = ({ token }: ClaimedJob): string => `result of ${token}`;

const holderSteps: fc.Arbitrary<Step>[] = [
  withClaimed(
    (store, job) => store.complete(job, resultOf(job)),
    (model, job) =>
      model.asHolder(job, (each) => {
        expect(each.result).toBe(undefined); // a job has one result
        each.state = 'completed';
        each.result = resultOf(job);
      }),
  ),
  withClaimed(
    (store, job) => store.fail(job, failure, { delayMs: 50 }),
    (model, job) => model.fail(job, true, 50),
  ),
  withClaimed(
    (store, job) => store.fail(job, failure, { retry: false }),
    (model, job) => model.fail(job, false, 0),
  ),
  withClaimed(
    (store, job) => store.heartbeat(job, leaseMs),
    (model, job) => model.asHolder(job, (each) => (each.leaseUntil = model.now + leaseMs)),
  ),
  withClaimed(
    (store, job) => store.release(job),
    (model, job) =>
      model.asHolder(job, (each) => {
        each.state = 'waiting';
        each.attempts--;
      }),
  ),
];

const otherSteps: fc.Arbitrary<Step>[] = [
  fc.tuple(user, batch).map(([who, name]) => async (model, { users }) => {
    expect(await users[who]?.cancel(name)).toBe(model.cancel(name));
  }),
  fc.constantFrom(10, 60, 120).map((durationMs) => async (model) => {
    model.now += durationMs;
  }),
];

async function run(steps: readonly Step[], path: string): Promise<void> {
  const model = new ModelStore();
  const now = (): number => model.now;
  const users = [await openSqliteJobStore(path, { now }), await openSqliteJobStore(path, { now })];
  const real: Real = { users, claimed: [] };
  try {
    for (const step of steps) {
      await step(model, real);
      const depths = (await users[0]?.queues()) ?? [];
      expect(depths.map(({ queue, waiting, running }) => ({ queue, waiting, running }))).toEqual(model.depths());
      for (const name of batches) {
        const listed = await users[0]?.list(name);
        const facts = listed?.map(({ customId: id, index, state, attempts, result }) => ({
          id,
          index,
          state,
          attempts,
          result,
        }));
        expect(facts).toEqual(model.listed(name));
      }
    }
  } finally {
    for (const store of users) await store.close();
  }
}

it('has the results of the model', async () => {
  let number = 0;
  const step = fc.oneof(
    { arbitrary: enqueue(), weight: 3 },
    { arbitrary: claim(), weight: 4 },
    ...holderSteps.map((arbitrary) => ({ arbitrary, weight: 1 })),
    ...otherSteps.map((arbitrary) => ({ arbitrary, weight: 1 })),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), (steps) =>
      run(steps, join(folder, `${number++}.db`)),
    ),
    { numRuns: 60 },
  );
});
