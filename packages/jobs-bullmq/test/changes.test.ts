/** Which changes of holders share a call, without a server. */
import type { ClaimedJob } from '@winnow/jobs';
import { expect, it } from 'vitest';
import { ScriptJobStore, type Scripts } from '../src/script-job-store.node.js';

const megabyte = 'x'.repeat(2 ** 20);

/** Completes a job with each of the results at once. @returns the number of changes of each call */
async function callsOf(results: readonly string[]): Promise<number[]> {
  const calls: number[] = [];
  const connection: Scripts = {
    isOpen: true,
    check: () => undefined,
    run: (_name, _now, numChanges) => {
      calls.push(Number(numChanges));
      return Promise.resolve(Array.from({ length: Number(numChanges) }, () => 'held'));
    },
    close: () => Promise.resolve(),
  };
  const store = new ScriptJobStore(connection, undefined, 5);
  const job = {
    batchId: 'batch',
    customId: 'a',
    index: 0,
    queue: 'default',
    payload: '',
    attempt: 1,
    isSuspect: false,
  };
  const claimed: ClaimedJob = { ...job, token: 'token' };
  const states = await Promise.all(results.map((result) => store.complete(claimed, result)));
  expect(new Set(states)).toEqual(new Set(['held']));
  return calls;
}

it('shares a call among the changes of a turn, but no more than the server can take at once', async () => {
  expect(await callsOf(Array.from({ length: 250 }, () => 'short'))).toEqual([100, 100, 50]);
  expect(await callsOf(Array.from({ length: 8 }, () => megabyte))).toEqual([3, 3, 2]);
  expect(await callsOf([megabyte.repeat(5), 'short', megabyte.repeat(5)])).toEqual([1, 1, 1]);
});
