/** The course of a batch: lines to jobs, jobs to answers, answers to files. Every step can be repeated after a crash. */
import { rm } from 'node:fs/promises';
import { runWorker, type JobStore } from '@winnow/jobs';
import type { BatchEndpoint } from '@winnow/server';
import { InterruptedError, UsageError } from '../../errors/errors.js';
import type { CommandContext } from '../command-host.js';
import { queueOf } from '../queue/open-queue.js';
import { enqueue, idOf, pathsOf, report, writeResults } from './batch-files.js';
import type { BatchFlags } from './command.js';
import { LineFigures } from './figures.js';
import { withLineServer, type LineModels, type LineServer } from './line-server.js';
import { runQueuedBatch } from './queued-batch.js';

/** Lease of a running line: after a crash, lines that were running wait this long before they run again. */
const leaseMs = 5000;

export async function runBatch(input: string, flags: BatchFlags, context: CommandContext): Promise<void> {
  const queue = queueOf(flags, context.io);
  if (queue !== undefined) return runQueuedBatch(input, queue, flags, context);
  if (flags.cancel === true) throw new UsageError('--cancel: requires --queue');
  const paths = pathsOf(input, flags);
  const batchId = await idOf(input, flags, context);
  const { openSqliteJobStore } = await import('@winnow/jobs/node');
  const store = await openSqliteJobStore(paths.jobs);
  const figures = new LineFigures();
  try {
    await removeOthers(store, batchId, context);
    const { endpoints } = await enqueue(store, batchId, input, flags, context);
    await answer(store, batchId, endpoints, figures, flags, context);
    await writeResults(store, batchId, 'output', paths.output);
    await writeResults(store, batchId, 'errors', paths.errors);
    const { completed, failed } = await store.counts(batchId);
    await report(figures, { completed, failed, paths }, flags, context);
  } finally {
    await store.close();
  }
  for (const suffix of ['', '-wal', '-shm']) await rm(`${paths.jobs}${suffix}`, { force: true });
}

async function removeOthers(store: JobStore, batchId: string, { warn }: CommandContext): Promise<void> {
  const others = (await store.batches()).filter((id) => id !== batchId);
  if (others.length === 0) return;
  warn('the requests or the model have changed: the answers so far are dropped');
  for (const id of others) await store.remove(id);
}

async function answer(
  store: JobStore,
  batchId: string,
  endpoints: ReadonlySet<BatchEndpoint>,
  figures: LineFigures,
  flags: BatchFlags,
  context: CommandContext,
): Promise<void> {
  const isDone = async (): Promise<boolean> => {
    const { waiting, running } = await store.counts(batchId);
    return waiting + running === 0;
  };
  if (await isDone()) return;
  await withLineServer(modelsOf(endpoints, flags), flags, context, (lines) =>
    work(store, batchId, { ...lines, figures, isDone, prefixGrouping: flags.prefixGrouping }, context),
  );
}

/**
 * Only the models that the lines need.
 * @throws {UsageError} for lines to rank without a model: the demo model ranks none
 */
function modelsOf(endpoints: ReadonlySet<BatchEndpoint>, flags: BatchFlags): LineModels {
  const { model, modelId: id, embeddingModel = model, embeddingModelId = id } = flags;
  const { reranker = model, rerankerId = id } = flags;
  const generates = endpoints.has('/v1/chat/completions') || endpoints.has('/v1/completions');
  const ranks = endpoints.has('/v1/rerank');
  if (ranks && reranker === undefined) {
    throw new UsageError('--reranker: expected a model for the lines of /v1/rerank, got none');
  }
  return {
    models: generates ? [{ model, id }] : [],
    embeddingModels: endpoints.has('/v1/embeddings') ? [{ model: embeddingModel, id: embeddingModelId }] : [],
    rerankers: ranks && reranker !== undefined ? [{ model: reranker, id: rerankerId }] : [],
  };
}

interface Work extends LineServer {
  readonly figures: LineFigures;
  readonly prefixGrouping: boolean;
  readonly isDone: () => Promise<boolean>;
}

/** @throws {InterruptedError} by Ctrl-C, and by SIGTERM when the running lines have ended */
async function work(
  store: JobStore,
  batchId: string,
  { server, pools, figures, isDone, prefixGrouping }: Work,
  { io, signal, progress }: CommandContext,
): Promise<void> {
  const { batchLineHandler } = await import('@winnow/server');
  const counts = await store.counts(batchId);
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  let numDone = counts.completed + counts.failed;
  const drain = new AbortController();
  const stopDrain = io.onTerminate(() => drain.abort());
  progress.show('batch', numDone, total, 'lines');
  try {
    await runWorker(store, {
      name: `batch-${process.pid}`,
      concurrency: pools.reduce((sum, { concurrency }) => sum + concurrency, 0),
      leaseMs,
      handler: figures.counted(batchLineHandler((request) => server.call(request), { prefixGrouping })),
      signal,
      drain: drain.signal,
      isDone,
      onEnd: (_job, outcome) => {
        if (outcome === 'completed' || outcome === 'failed') progress.show('batch', ++numDone, total, 'lines');
      },
    });
  } finally {
    stopDrain();
    progress.clear();
  }
  if (signal.aborted || drain.signal.aborted) {
    throw new InterruptedError(`interrupted after ${numDone} of ${total} lines; the same command continues`);
  }
}
