/** Leases, retries, cancellation and expiry. */
import { ArgumentError } from '@winnow/tensor';
import { expect, it } from 'vitest';
import { retryDelayMs, type ClaimedJob } from '../job-store.js';
import { claimAll, claimOne, jobsOf, type UseBench } from './bench.js';

const oops = { code: 'oops', message: 'it broke' };

export function testAttempts(use: UseBench): void {
  testLeases(use);
  testDisappearing(use);
  testRetries(use);
  testHolders(use);
  testEnds(use);
}

function testLeases(use: UseBench): void {
  it('gives a job to another worker when its lease has lapsed, and keeps one result', async () => {
    const { leaseMs, open, elapse } = use();
    const store = await open();
    await store.enqueue('batch', jobsOf(['a']));
    const first = await claimOne(store, leaseMs, 'first');
    await elapse(leaseMs + 1);
    const second = await claimOne(store, 60_000, 'second');
    expect(second).toMatchObject({ customId: 'a', attempt: 2 });
    expect(second.token).not.toBe(first.token);
    expect(await store.heartbeat(first, 60_000)).toBe('lost');
    expect(await store.complete(first, 'of first')).toBe('lost');
    expect(await store.fail(first, oops)).toBe('lost');
    expect(await store.release(first)).toBe('lost');
    expect(await store.complete(second, 'of second')).toBe('held');
    expect(await store.complete(second, 'again')).toBe('lost');
    expect(await store.complete(first, 'of first')).toBe('lost');
    expect((await store.list('batch'))[0]).toMatchObject({ state: 'completed', result: 'of second', worker: 'second' });
  });

  it('extends leases by heartbeats, which report progress', async () => {
    const { leaseMs, open, elapse } = use();
    const store = await open();
    await store.enqueue('batch', jobsOf(['a']));
    const job = await claimOne(store, leaseMs);
    for (const progress of [0.25, 0.5]) {
      await elapse(leaseMs / 2 + 1);
      expect(await store.heartbeat(job, leaseMs, progress)).toBe('held');
      expect(await store.claim({ worker: 'other', leaseMs })).toEqual([]);
    }
    expect((await store.list('batch'))[0]).toMatchObject({ state: 'running', progress: 0.5 });
    expect(await store.complete(job, '')).toBe('held');
  });
}

function testDisappearing(use: UseBench): void {
  it('isolates a job whose workers disappear', async () => {
    const { leaseMs, open, elapse } = use();
    const store = await open();
    await store.enqueue('batch', jobsOf(['poison', 'good', 'later']));
    const claim = { worker: 'worker', leaseMs, limit: 2 };
    for (const attempt of [1, 2]) {
      const jobs = await store.claim(claim);
      expect(jobs.map((job) => [job.customId, job.attempt, job.isSuspect])).toEqual([
        ['poison', attempt, false],
        ['good', attempt, false],
      ]);
      await elapse(leaseMs + 1);
    }
    // both are tried again alone, after the others
    expect((await store.claim(claim)).map(({ customId }) => customId)).toEqual(['later']);
    expect(await store.claim({ ...claim, alone: false })).toEqual([]);
    const suspects = [await store.claim(claim), await store.claim(claim)].flat();
    expect(suspects.map(({ customId, isSuspect }) => [customId, isSuspect])).toEqual([
      ['poison', true],
      ['good', true],
    ]);
    expect(await store.complete(suspects[1] as ClaimedJob, 'done')).toBe('held');
    await elapse(leaseMs + 1);
    const [poison, good] = await store.list('batch');
    expect(poison).toMatchObject({ state: 'failed', attempts: 3, error: { code: 'lease_lapsed' } });
    expect(good).toMatchObject({ state: 'completed', attempts: 3 });
  });

  it('tries a job alone before its last attempt, when a worker disappeared with it', async () => {
    const { leaseMs, open, elapse } = use();
    const store = await open();
    await store.enqueue('batch', jobsOf(['a', 'b']), { maxAttempts: 2 });
    expect(await store.claim({ worker: 'worker', leaseMs, limit: 2 })).toHaveLength(2);
    await elapse(leaseMs + 1);
    const claimed = await store.claim({ worker: 'worker', leaseMs, limit: 2 });
    expect(claimed.map(({ attempt, isSuspect }) => [attempt, isSuspect])).toEqual([[2, true]]);
  });

  it('counts no attempt for a job that is returned', async () => {
    const store = await use().open();
    await store.enqueue('batch', jobsOf(['a']), { maxAttempts: 1 });
    for (let i = 0; i < 3; i++) expect(await store.release(await claimOne(store, 60_000))).toBe('held');
    expect(await claimOne(store, 60_000)).toMatchObject({ attempt: 1 });
  });
}

function testRetries(use: UseBench): void {
  it('tries failed jobs again after a delay, others meanwhile, and up to a number of attempts', async () => {
    const { open, elapse } = use();
    const store = await open();
    await store.enqueue('batch', jobsOf(['a', 'b']), { maxAttempts: 2 });
    expect(await store.fail(await claimOne(store, 60_000), oops, { delayMs: 500 })).toBe('waiting');
    expect((await store.list('batch'))[0]).toMatchObject({ state: 'waiting', attempts: 1, error: oops });
    expect((await claimAll(store)).map(({ customId }) => customId)).toEqual(['b']);
    await elapse(501);
    const job = await claimOne(store, 60_000);
    expect(job).toMatchObject({ customId: 'a', attempt: 2 });
    expect(await store.fail(job, oops)).toBe('failed');
    expect((await store.list('batch'))[0]).toMatchObject({ state: 'failed', attempts: 2, error: oops });
    expect(await store.counts('batch')).toMatchObject({ failed: 1, running: 1 });
  });

  it('doubles the delay with each attempt', async () => {
    expect([1, 2, 3, 20].map(retryDelayMs)).toEqual([1000, 2000, 4000, 300_000]);
    const { open } = use();
    const store = await open();
    await store.enqueue('batch', jobsOf(['a']));
    await store.fail(await claimOne(store, 60_000), oops);
    expect(await claimAll(store)).toEqual([]);
  });

  it('has no error after a later attempt completes', async () => {
    const store = await use().open();
    await store.enqueue('batch', jobsOf(['a']));
    await store.fail(await claimOne(store, 60_000), oops, { delayMs: 0 });
    await store.complete(await claimOne(store, 60_000), 'done');
    const [info] = await store.list('batch');
    expect(info).toMatchObject({ state: 'completed', result: 'done' });
    expect(info?.error).toBe(undefined);
  });

  it('does not try again what cannot succeed', async () => {
    const store = await use().open();
    await store.enqueue('batch', jobsOf(['a']));
    const error = { ...oops, detail: '{"status":400}' };
    expect(await store.fail(await claimOne(store, 60_000), error, { retry: false })).toBe('failed');
    expect((await store.list('batch'))[0]).toMatchObject({ state: 'failed', attempts: 1, error });
  });
}

function testHolders(use: UseBench): void {
  it('keeps apart what holders do at once', async () => {
    const store = await use().open();
    await store.enqueue('gone', jobsOf(['x']));
    const canceled = await claimOne(store, 60_000);
    await store.cancel('gone');
    await store.enqueue('batch', jobsOf(['a', 'b', 'c', 'd']));
    const [a, b, c, d] = (await claimAll(store)) as [ClaimedJob, ClaimedJob, ClaimedJob, ClaimedJob];
    const states = await Promise.all([
      store.complete(canceled, 'late'),
      store.complete(a, 'of a'),
      store.complete({ ...d, token: 'of another' }, 'not of d'),
      store.fail(b, oops, { retry: false }),
      store.release(c),
      store.complete(a, 'again'),
      store.heartbeat(d, 60_000, 0.5),
      store.complete({ ...a, batchId: 'unknown' }, 'of none'),
    ]);
    expect(states).toEqual(['canceled', 'held', 'lost', 'failed', 'held', 'lost', 'held', 'lost']);
    const infos = await store.list('batch');
    expect(infos.map(({ state, result, progress }) => [state, result, progress])).toEqual([
      ['completed', 'of a', 1],
      ['failed', undefined, 0],
      ['waiting', undefined, 0],
      ['running', undefined, 0.5],
    ]);
    const numEach = { waiting: 1, running: 1, completed: 1, failed: 1 };
    expect(await store.counts('batch')).toEqual({ ...numEach, canceled: 0, expired: 0 });
  });

  it('rejects numbers that are none, and not the changes beside them', async () => {
    const store = await use().open();
    await store.enqueue('batch', jobsOf(['a', 'b']));
    const [a, b] = (await claimAll(store)) as [ClaimedJob, ClaimedJob];
    const completing = store.complete(a, 'done');
    const rejected = [
      store.heartbeat(b, 60_000, Number.NaN),
      store.heartbeat(b, 60_000, 'half' as never),
      store.fail(b, oops, { delayMs: Number.NaN }),
    ];
    for (const change of rejected) await expect(change).rejects.toSatisfy(ArgumentError.isInstance);
    expect(await completing).toBe('held');
    expect(await store.counts('batch')).toMatchObject({ running: 1, completed: 1 });
  });
}

function testEnds(use: UseBench): void {
  it('cancels what has not ended, also while it runs', async () => {
    const store = await use().open();
    await store.enqueue('batch', jobsOf(['a', 'b', 'c']));
    await store.enqueue('other', jobsOf(['a']));
    await store.complete(await claimOne(store, 60_000), 'done');
    const running = await claimOne(store, 60_000);
    expect(await store.cancel('batch')).toBe(2);
    expect(await store.heartbeat(running, 60_000)).toBe('canceled');
    expect(await store.complete(running, 'late')).toBe('canceled');
    expect(await store.fail(running, oops)).toBe('canceled');
    expect(await store.release(running)).toBe('canceled');
    const infos = await store.list('batch');
    expect(infos.map(({ state }) => state)).toEqual(['completed', 'canceled', 'canceled']);
    expect(infos[1]?.result).toBe(undefined);
    expect((await claimAll(store)).map(({ batchId }) => batchId)).toEqual(['other']);
    expect(await store.cancel('batch')).toBe(0);
    expect(await store.cancel('unknown')).toBe(0);
  });

  it('expires what was not claimed in time; what runs may complete', async () => {
    const { leaseMs, open, elapse, now } = use();
    const store = await open();
    const expiresAtMs = now() + leaseMs;
    await store.enqueue('batch', jobsOf(['a', 'b', 'c']), { expiresAtMs });
    const running = await claimOne(store, 60_000);
    const stalled = await claimOne(store, leaseMs);
    await elapse(leaseMs + 1);
    expect(await claimAll(store)).toEqual([]);
    expect((await store.list('batch')).map(({ state }) => state)).toEqual(['running', 'expired', 'expired']);
    expect(await store.complete(running, 'just in time')).toBe('held');
    expect(await store.complete(stalled, 'too late')).toBe('lost');
    expect(await store.counts('batch')).toMatchObject({ completed: 1, expired: 2 });
  });
}
