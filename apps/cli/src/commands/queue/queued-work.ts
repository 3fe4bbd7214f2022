/** Work that the workers of a queue do for a command. */
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { JobFailure, type JobInfo, type JobStore } from '@winnow/jobs';
import { IoError } from '@winnow/tensor';
import { InterruptedError } from '../../errors/errors.js';
import type { Unit } from '../../terminal/progress.js';
import type { CommandContext } from '../command-host.js';
import { openQueue, withoutPassword } from './open-queue.js';

const pollMs = 250;
/** The command polls less often while more jobs than this are waiting, since a database counts all of them at each poll. */
const manyWaiting = 100;
const manyPollMs = 1000;
/** Time after which the command reports that no worker is running. */
const lonelyMs = 5000;

/** Number of claims of a job: this many workers may be killed while they run it. */
export const maxAttempts = 10;

export interface QueuedWork {
  readonly url: string;
  readonly batchId: string;
  /** What a job is called, in the plural. */
  readonly unit: Unit;
  /** Adds the jobs; those that are there from an earlier call stay. @returns how many there are */
  enqueue(store: JobStore): Promise<number>;
  /** Takes the results when all jobs have ended. */
  finish(store: JobStore): Promise<void>;
}

/**
 * The identity of work: its content, and where its results go. Another output, or another machine, makes it different
 * work.
 */
export function placedId(contentId: string, output: string): string {
  return `${contentId} ${hostname()} ${resolve(output)}`;
}

/**
 * Adds the work, waits until workers have done it, and takes the results. After a crash the same call continues.
 * @param isCanceled take it out of the queue instead
 * @throws {InterruptedError} by Ctrl-C and SIGTERM; workers go on
 */
export async function runQueued(work: QueuedWork, isCanceled: boolean, context: CommandContext): Promise<void> {
  const { url, batchId, unit } = work;
  const store = await openQueue(url);
  try {
    if (isCanceled) context.warn(`${await store.cancel(batchId)} ${unit} canceled`);
    else {
      await untilDone(store, work, await work.enqueue(store), context);
      await work.finish(store);
    }
    await store.remove(batchId);
  } finally {
    await store.close();
  }
}

async function untilDone(
  store: JobStore,
  { batchId, url, unit }: QueuedWork,
  total: number,
  { io, progress, signal, warn }: CommandContext,
): Promise<void> {
  const terminated = new AbortController();
  const unsubscribe = io.onTerminate(() => terminated.abort());
  const ending = AbortSignal.any([signal, terminated.signal]);
  let lonelySinceMs = performance.now();
  try {
    for (;;) {
      const { waiting, running, completed, failed } = await store.counts(batchId);
      const numDone = completed + failed;
      if (waiting + running + numDone < total) {
        throw new IoError({
          source: withoutPassword(url),
          message: 'the batch was canceled or removed by another process',
        });
      }
      if (waiting + running === 0) return;
      progress.show('queue', numDone, total, unit);
      if (running > 0) lonelySinceMs = performance.now();
      else if (performance.now() - lonelySinceMs > lonelyMs) {
        warn(`no worker answers the ${unit}; winnow worker --queue ${withoutPassword(url)} starts one`);
        lonelySinceMs = Infinity;
      }
      await sleep(waiting > manyWaiting ? manyPollMs : pollMs, undefined, { signal: ending }).catch(() => {});
      if (!ending.aborted) continue;
      throw new InterruptedError(
        `interrupted after ${numDone} of ${total} ${unit}; workers go on, and the same command waits for them`,
      );
    }
  } finally {
    unsubscribe();
    progress.clear();
  }
}

/**
 * A line of a batch is put into the queue of the model that it names, and that may be the name of a queue for other
 * work.
 */
export function lineInQueue(queue: string): JobFailure {
  return new JobFailure({ code: 'model_not_found', message: `no model '${queue}'` }, { retry: false });
}

/** Pages of a batch's jobs that have ended, by position. */
export async function* endedJobs(store: JobStore, batchId: string): AsyncGenerator<JobInfo, void, void> {
  for (let after = -1; ;) {
    const jobs = await store.list(batchId, { after, limit: 20 });
    yield* jobs;
    const last = jobs.at(-1);
    if (last === undefined) return;
    after = last.index;
  }
}
