/** A batch whose lines the workers of a queue answer. */
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { JobStore } from '@winnow/jobs';
import { IoError } from '@winnow/tensor';
import { InterruptedError, UsageError } from '../../errors/errors.js';
import type { CommandContext } from '../command-host.js';
import { enqueue, idOf, pathsOf, report, writeResults } from './batch-files.js';
import type { BatchFlags } from './command.js';
import { openQueue } from './open-queue.js';

const pollMs = 250;
/** Time without a worker after which the command says so. */
const lonelyMs = 5000;

/** Flags of models, which workers have. */
const modelFlags: Readonly<Partial<Record<keyof BatchFlags, string>>> = {
  model: '--model',
  modelId: '--model-id',
  embeddingModel: '--embedding-model',
  embeddingModelId: '--embedding-model-id',
  pooling: '--pooling',
  maxSessions: '--max-sessions',
};

/** @throws {InterruptedError} by Ctrl-C and SIGTERM; workers go on */
export async function runQueuedBatch(
  input: string,
  url: string,
  flags: BatchFlags,
  context: CommandContext,
): Promise<void> {
  for (const [name, flagName] of Object.entries(modelFlags)) {
    if (flags[name as keyof BatchFlags] === undefined) continue;
    throw new UsageError(`${flagName}: cannot be combined with --queue, whose workers have the models`);
  }
  const paths = pathsOf(input, flags);
  // another output, or another machine, is another batch
  const batchId = `${await idOf(input, flags, context)} ${hostname()} ${resolve(paths.output)}`;
  const store = await openQueue(url);
  try {
    if (flags.cancel === true) {
      context.warn(`${await store.cancel(batchId)} lines canceled`);
      await store.remove(batchId);
      return;
    }
    const { numLines } = await enqueue(store, batchId, input, flags, context);
    await untilDone(store, batchId, numLines, url, context);
    await writeResults(store, batchId, 'output', paths.output);
    await writeResults(store, batchId, 'errors', paths.errors);
    const { completed, failed } = await store.counts(batchId);
    await report(undefined, { completed, failed, paths }, flags, context);
    await store.remove(batchId);
  } finally {
    await store.close();
  }
}

async function untilDone(
  store: JobStore,
  batchId: string,
  total: number,
  url: string,
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
        throw new IoError({ source: url, message: 'the batch was canceled or removed by another process' });
      }
      if (waiting + running === 0) return;
      progress.show('batch', numDone, total, 'lines');
      if (running > 0) lonelySinceMs = performance.now();
      else if (performance.now() - lonelySinceMs > lonelyMs) {
        warn(`no worker answers the lines; winnow worker --queue ${url} starts one`);
        lonelySinceMs = Infinity;
      }
      await sleep(pollMs, undefined, { signal: ending }).catch(() => {});
      if (!ending.aborted) continue;
      throw new InterruptedError(
        `interrupted after ${numDone} of ${total} lines; workers go on, and the same command waits for them`,
      );
    }
  } finally {
    unsubscribe();
    progress.clear();
  }
}
