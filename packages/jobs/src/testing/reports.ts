/** Lists, events and removal. */
import { expect, it } from 'vitest';
import type { JobEvent, JobStore } from '../job-store.js';
import { claimOne, jobsOf, type UseBench } from './bench.js';

export function testReports(use: UseBench): void {
  testList(use);
  testEvents(use);
  testRemoval(use);
}

function testList(use: UseBench): void {
  it('lists by position, in pages and by state', async () => {
    const store = await use().open();
    const ids = Array.from({ length: 25 }, (_, index) => `job-${24 - index}`);
    await store.enqueue('batch', jobsOf(ids).toReversed());
    const seen: string[] = [];
    for (let after = -1; ;) {
      const page = await store.list('batch', { after, limit: 10 });
      seen.push(...page.map(({ customId }) => customId));
      const last = page.at(-1);
      if (last === undefined) break;
      after = last.index;
    }
    expect(seen).toEqual(ids);
    const job = await claimOne(store, 60_000);
    await store.complete(job, 'done');
    expect((await store.list('batch', { states: ['completed', 'failed'] })).map(({ customId }) => customId)).toEqual([
      job.customId,
    ]);
    expect(await store.list('batch', { states: ['waiting'], after: 20 })).toHaveLength(job.index > 20 ? 3 : 4);
  });
}

function testEvents(use: UseBench): void {
  it('reports events of other users of the store, in order', async () => {
    const [store, other] = [await use().open(), await use().open()];
    await store.enqueue('before', jobsOf(['a']));
    await store.cancel('before');
    const ending = new AbortController();
    // events without a sequence number begin at some time from now on, since stores have several connections
    const [, canceled] = await firstOf(store.events({ batchId: 'before', after: 0, signal: ending.signal }), 2);
    const events = store.events({ after: canceled?.sequence as number, signal: ending.signal });
    await other.enqueue('batch', jobsOf(['a']));
    const job = await claimOne(other, 60_000);
    await other.heartbeat(job, 60_000, 0.5);
    await other.fail(job, { code: 'oops', message: '' }, { delayMs: 0 });
    await other.complete(await claimOne(other, 60_000), '');
    const found = await firstOf(events, 6);
    ending.abort();
    expect(found.map(({ event }) => event)).toEqual([
      'waiting',
      'running',
      'progress',
      'waiting',
      'running',
      'completed',
    ]);
    expect(found.every(({ batchId, customId }) => batchId === 'batch' && customId === 'a')).toBe(true);
    const sequences = found.map(({ sequence }) => sequence);
    expect(sequences).toEqual([...new Set(sequences)].toSorted((a, b) => a - b));
  });

  it('repeats the events of a batch after a sequence number', async () => {
    const store = await use().open();
    await store.enqueue('one', jobsOf(['a']));
    await store.enqueue('two', jobsOf(['a']));
    await store.cancel('two');
    const { signal } = new AbortController();
    const [first, second] = await firstOf(store.events({ batchId: 'two', after: 0, signal }), 2);
    expect([first?.event, second?.event]).toEqual(['waiting', 'canceled']);
    const [again] = await firstOf(store.events({ after: first?.sequence as number, signal }), 1);
    expect(again).toEqual(second);
  });

  it('ends the events when asked to', async () => {
    const store = await use().open();
    const ending = new AbortController();
    const events = store.events({ signal: ending.signal })[Symbol.asyncIterator]();
    const next = events.next();
    ending.abort();
    expect((await next).done).toBe(true);
  });
}

function testRemoval(use: UseBench): void {
  it('forgets a batch that is removed', async () => {
    const store = await use().open();
    await store.enqueue('batch', jobsOf(['a', 'b']));
    await store.enqueue('other', jobsOf(['a']));
    const job = await claimOne(store, 60_000);
    expect(await store.remove('batch')).toBe(true);
    expect(await store.remove('batch')).toBe(false);
    expect(await store.list('batch')).toEqual([]);
    expect(await store.batches()).toEqual(['other']);
    expect(await store.complete(job, 'late')).toBe('lost');
    expect(await claimOne(store, 60_000)).toMatchObject({ batchId: 'other' });
    expect(await store.claim({ worker: 'worker', leaseMs: 1000 })).toEqual([]);
    await store.enqueue('batch', jobsOf(['a']));
    expect((await store.list('batch'))[0]).toMatchObject({ state: 'waiting', attempts: 0 });
  });

  it('rejects use after close', async () => {
    const store: JobStore = await use().open();
    await store.close();
    await store.close();
    await expect(store.claim({ worker: 'worker', leaseMs: 1000 })).rejects.toThrow(/released/);
  });
}

async function firstOf(events: AsyncIterable<JobEvent>, count: number): Promise<JobEvent[]> {
  const found: JobEvent[] = [];
  for await (const event of events) {
    found.push(event);
    if (found.length === count) break;
  }
  return found;
}
