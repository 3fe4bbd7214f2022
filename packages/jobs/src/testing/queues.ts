/** What is added, and in which order it is claimed. */
import { ArgumentError } from '@winnow/tensor';
import { expect, it } from 'vitest';
import { jobPriorities, type ClaimedJob, type NewJob } from '../job-store.js';
import { claimAll, claimOne, jobsOf, type UseBench } from './bench.js';

const names = (jobs: readonly ClaimedJob[]): string[] => jobs.map(({ batchId, customId }) => `${batchId}/${customId}`);

export function testQueues(use: UseBench, sortsGroups: boolean): void {
  testEnqueue(use);
  testIds(use);
  testOrder(use, sortsGroups);
  testQueueInfos(use);
  testSharing(use);
}

function testEnqueue(use: UseBench): void {
  it('gives what was added, and keeps its result', async () => {
    const store = await use().open();
    const payload = '{"text":"\u00e9 \u{1f30a} \\u0000 \'quotes\'; --"}';
    const added = [{ customId: 'a', index: 4, payload }];
    expect(await store.enqueue('batch', added)).toEqual({ numAdded: 1, conflicts: [] });
    const job = await claimOne(store, 60_000);
    expect(job).toMatchObject({ batchId: 'batch', customId: 'a', index: 4, payload, attempt: 1, queue: 'default' });
    expect(await store.claim({ worker: 'other', leaseMs: 60_000 })).toEqual([]);
    expect(await store.complete(job, payload)).toBe('held');
    const [info] = await store.list('batch');
    expect(info).toMatchObject({
      customId: 'a',
      index: 4,
      state: 'completed',
      attempts: 1,
      result: payload,
      worker: 'worker',
    });
    expect(await store.counts('batch')).toEqual({
      waiting: 0,
      running: 0,
      completed: 1,
      failed: 0,
      canceled: 0,
      expired: 0,
    });
  });

  it('adds a job of a known id once, also when it has ended', async () => {
    const store = await use().open();
    const jobs = jobsOf(['a', 'b']);
    await store.enqueue('batch', jobs);
    await store.complete(await claimOne(store, 60_000), 'first');
    expect(await store.enqueue('batch', [...jobs, { customId: 'c', index: 2, payload: '' }])).toEqual({
      numAdded: 1,
      conflicts: [],
    });
    expect(names(await claimAll(store))).toEqual(['batch/b', 'batch/c']);
    expect((await store.list('batch'))[0]?.result).toBe('first');
  });
}

function testIds(use: UseBench): void {
  it('tells which positions have the id of another one', async () => {
    const store = await use().open();
    const jobs = ['a', 'b', 'a'].map((customId, index) => ({ customId, index, payload: String(index) }));
    expect(await store.enqueue('batch', jobs)).toEqual({ numAdded: 2, conflicts: [2] });
    expect(await store.enqueue('batch', [{ customId: 'b', index: 7, payload: '' }])).toEqual({
      numAdded: 0,
      conflicts: [7],
    });
    expect((await claimAll(store)).map(({ payload }) => payload)).toEqual(['0', '1']);
  });

  it('never gives a job that has failed from the start', async () => {
    const store = await use().open();
    const error = { code: 'bad_line', message: 'not JSON', detail: 'line 2' };
    const jobs = [...jobsOf(['a']), { customId: 'b', index: 1, payload: '', error }];
    expect(await store.enqueue('batch', jobs)).toEqual({ numAdded: 2, conflicts: [] });
    expect(names(await claimAll(store))).toEqual(['batch/a']);
    expect((await store.list('batch'))[1]).toMatchObject({ state: 'failed', attempts: 0, error });
  });

  it('has batches of their own ids', async () => {
    const store = await use().open();
    await store.enqueue('one', jobsOf(['a']));
    await store.enqueue('two', jobsOf(['a']));
    expect(await store.batches()).toEqual(['one', 'two']);
    const [first, second] = await claimAll(store);
    await store.complete(second as ClaimedJob, 'of two');
    expect(await store.complete(first as ClaimedJob, 'of one')).toBe('held');
    expect((await store.list('two'))[0]?.result).toBe('of two');
    expect(await store.list('three')).toEqual([]);
  });

  it('rejects invalid arguments', async () => {
    const store = await use().open();
    const invalid: readonly NewJob[][] = [
      [{ customId: '', index: 0, payload: '' }],
      [{ customId: 'a', index: -1, payload: '' }],
      [...jobsOf(['a']), ...jobsOf(['b'])],
    ];
    for (const jobs of invalid) await expect(store.enqueue('batch', jobs)).rejects.toSatisfy(ArgumentError.isInstance);
    await expect(store.enqueue('', jobsOf(['a']))).rejects.toSatisfy(ArgumentError.isInstance);
    await expect(store.enqueue('batch', jobsOf(['a']), { maxAttempts: 0 })).rejects.toSatisfy(ArgumentError.isInstance);
    await expect(store.claim({ worker: 'worker', leaseMs: 0 })).rejects.toSatisfy(ArgumentError.isInstance);
    expect(await store.batches()).toEqual([]);
  });
}

function testOrder(use: UseBench, sortsGroups: boolean): void {
  it('claims interactive jobs before those of batches', async () => {
    const store = await use().open();
    await store.enqueue('batch', jobsOf(['a', 'b']));
    await store.enqueue('chat', jobsOf(['c', 'd']), { priority: jobPriorities.interactive });
    expect(names(await claimAll(store))).toEqual(['chat/c', 'chat/d', 'batch/a', 'batch/b']);
  });

  it('claims batches of a priority in the order in which they began', async () => {
    const store = await use().open();
    await store.enqueue('z', jobsOf(['a']));
    await store.enqueue('b', jobsOf(['a']));
    if (sortsGroups) await store.enqueue('z', [{ customId: 'late', index: 1, payload: '' }]);
    expect(names(await claimAll(store))).toEqual(sortsGroups ? ['z/a', 'z/late', 'b/a'] : ['z/a', 'b/a']);
  });

  it.runIf(sortsGroups)('claims the jobs of a group one after the other', async () => {
    const store = await use().open();
    const groups = ['b', 'a', 'b', '', 'a'];
    await store.enqueue(
      'batch',
      groups.map((group, index) => ({ customId: `${index}`, index, payload: '', group })),
    );
    expect((await store.claim({ worker: 'worker', leaseMs: 1000, limit: 5 })).map(({ index }) => index)).toEqual([
      3, 1, 4, 0, 2,
    ]);
  });

  it('claims from the queues that are asked for, up to a limit', async () => {
    const store = await use().open();
    await store.enqueue('one', jobsOf(['a', 'b', 'c']), { queue: 'model-1' });
    await store.enqueue('two', jobsOf(['d']), { queue: 'model-2' });
    await store.enqueue('three', jobsOf(['e']), { queue: 'model-3' });
    const claim = { worker: 'worker', leaseMs: 60_000 };
    expect(await store.claim({ ...claim, queues: ['other'] })).toEqual([]);
    expect(await store.claim({ ...claim, queues: [] })).toEqual([]);
    expect(names(await store.claim({ ...claim, queues: ['model-2', 'model-3'], limit: 9 }))).toEqual([
      'two/d',
      'three/e',
    ]);
    expect(names(await store.claim({ ...claim, limit: 2 }))).toEqual(['one/a', 'one/b']);
  });
}

function testQueueInfos(use: UseBench): void {
  it('claims jobs of one batch from queues of their own', async () => {
    const store = await use().open();
    const queues = ['model-1', undefined, 'model-1', 'model-3'];
    const jobs = queues.map((queue, index) => ({
      ...{ customId: `${index}`, index, payload: '' },
      ...(queue === undefined ? {} : { queue }),
    }));
    await store.enqueue('batch', jobs, { queue: 'model-2' });
    const claim = { worker: 'worker', leaseMs: 60_000, limit: 9 };
    const claimed = await store.claim({ ...claim, queues: ['model-1', 'model-2'] });
    expect(claimed.map(({ index, queue }) => [index, queue])).toEqual([
      [0, 'model-1'],
      [1, 'model-2'],
      [2, 'model-1'],
    ]);
    await expect(store.enqueue('batch', [{ ...jobs[0], queue: '' } as NewJob])).rejects.toSatisfy(
      ArgumentError.isInstance,
    );
  });

  it('tells what waits and runs in each queue, and where', async () => {
    const { leaseMs, open, elapse } = use();
    const store = await open();
    expect(await store.queues()).toEqual([]);
    await store.enqueue('one', jobsOf(['a', 'b', 'c', 'd']), { queue: 'model-2' });
    await store.enqueue('two', jobsOf(['a']), { queue: 'model-1' });
    const queues = ['model-2'];
    const [first] = await store.claim({ worker: 'w-2', leaseMs: 60_000, limit: 2, queues });
    await store.claim({ worker: 'w-1', leaseMs, queues });
    const workers = [
      { name: 'w-1', running: 1 },
      { name: 'w-2', running: 2 },
    ];
    expect(await store.queues()).toEqual([
      { queue: 'model-1', waiting: 1, running: 0, workers: [] },
      { queue: 'model-2', waiting: 1, running: 3, workers },
    ]);
    await store.complete(first as ClaimedJob, '');
    await store.cancel('two');
    await elapse(leaseMs + 1);
    expect(await store.queues()).toEqual([
      { queue: 'model-2', waiting: 2, running: 1, workers: [{ name: 'w-2', running: 1 }] },
    ]);
  });
}

function testSharing(use: UseBench): void {
  it('gives each job to one of several claimants', async () => {
    const stores = await Promise.all([use().open(), use().open(), use().open()]);
    const ids = Array.from({ length: 120 }, (_, index) => `job-${index}`);
    await stores[0].enqueue('batch', jobsOf(ids));
    const claimed = await Promise.all(stores.map((store, index) => claimAll(store, `worker-${index}`)));
    expect(
      claimed
        .flat()
        .map(({ customId }) => customId)
        .toSorted(),
    ).toEqual(ids.toSorted());
    await Promise.all(claimed.flatMap((jobs, index) => jobs.map((job) => stores[index]?.complete(job, job.customId))));
    expect((await stores[1].counts('batch')).completed).toBe(ids.length);
  });

  it('keeps everything when it is closed and reopened', async () => {
    const store = await use().open();
    await store.enqueue('batch', jobsOf(['a', 'b', 'c']));
    const job = await claimOne(store, 60_000);
    await store.complete(await claimOne(store, 60_000), 'result');
    await store.close();
    const again = await use().open();
    expect((await again.list('batch')).map(({ state }) => state)).toEqual(['running', 'completed', 'waiting']);
    expect(await again.complete(job, 'late')).toBe('held');
    expect(names(await claimAll(again))).toEqual(['batch/c']);
  });
}
