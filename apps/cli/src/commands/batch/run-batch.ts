/** The course of a batch: lines to jobs, jobs to answers, answers to files. Every step can be repeated after a crash. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import { fileSink } from '@winnow/bytes/node';
import { runWorker, type JobHandler, type JobStore } from '@winnow/jobs';
import type { BatchEndpoint, ResultKind } from '@winnow/server';
import { IoError } from '@winnow/tensor';
import { InterruptedError } from '../../errors/errors.js';
import type { CommandContext } from '../command-host.js';
import { withBatchServer, type BatchServer } from './batch-server.js';
import type { BatchFlags } from './command.js';

interface BatchPaths {
  readonly input: string;
  readonly output: string;
  readonly errors: string;
  /** The job store, until everything is written. */
  readonly jobs: string;
}

/** Number of claims of a line: as often may the command be killed while it runs. */
const maxAttempts = 10;
/** After a crash the lines that ran wait as long. */
const leaseMs = 5000;

export async function runBatch(input: string, flags: BatchFlags, context: CommandContext): Promise<void> {
  const paths = pathsOf(input, flags);
  const batchId = await idOf(input, flags, context);
  const { openSqliteJobStore } = await import('@winnow/jobs/node');
  const store = await openSqliteJobStore(paths.jobs);
  const figures = new BatchFigures(performance.now());
  try {
    await removeOthers(store, batchId, context);
    const endpoints = await enqueue(store, batchId, input, flags, context);
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

function pathsOf(input: string, { output, errors }: BatchFlags): BatchPaths {
  const bare = (path: string): string => path.replace(/\.jsonl$/i, '');
  const outputPath = output ?? `${bare(input)}.output.jsonl`;
  return {
    input,
    output: outputPath,
    errors: errors ?? `${bare(outputPath)}.errors.jsonl`,
    jobs: `${outputPath}.jobs`,
  };
}

/** Names what is answered by what: a changed input, or another model, is another batch. */
async function idOf(input: string, flags: BatchFlags, { signal }: CommandContext): Promise<string> {
  const found = await stat(input).catch(() => undefined);
  if (found?.isFile() !== true) throw new IoError({ source: input, message: 'expected a file of requests' });
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(input, { signal })) hash.update(chunk as Buffer);
  const { model, embeddingModel, modelId, embeddingModelId } = flags;
  return `${hash.digest('hex')} ${JSON.stringify([model, embeddingModel, modelId, embeddingModelId])}`;
}

async function removeOthers(store: JobStore, batchId: string, { warn }: CommandContext): Promise<void> {
  const others = (await store.batches()).filter((id) => id !== batchId);
  if (others.length === 0) return;
  warn('the requests or the model have changed: the answers so far are dropped');
  for (const id of others) await store.remove(id);
}

async function enqueue(
  store: JobStore,
  batchId: string,
  input: string,
  { prefixGrouping }: BatchFlags,
  { progress, signal, warn }: CommandContext,
): Promise<ReadonlySet<BatchEndpoint>> {
  const { enqueueBatchLines } = await import('@winnow/server');
  const before = await store.counts(batchId);
  progress.wait(`read ${input}`);
  const { numLines, endpoints } = await enqueueBatchLines(store, batchId, createReadStream(input, { signal }), {
    maxAttempts,
    prefixGrouping,
    signal,
  });
  progress.clear();
  const numDone = before.completed + before.failed;
  if (numDone > 0) warn(`continuing: ${numDone} of ${numLines} lines are done`);
  return endpoints;
}

async function answer(
  store: JobStore,
  batchId: string,
  endpoints: ReadonlySet<BatchEndpoint>,
  figures: BatchFigures,
  flags: BatchFlags,
  context: CommandContext,
): Promise<void> {
  const isDone = async (): Promise<boolean> => {
    const { waiting, running } = await store.counts(batchId);
    return waiting + running === 0;
  };
  if (await isDone()) return;
  await withBatchServer(endpoints, flags, context, (batch) =>
    work(store, batchId, { ...batch, figures, isDone, prefixGrouping: flags.prefixGrouping }, context),
  );
}

interface Work extends BatchServer {
  readonly figures: BatchFigures;
  readonly prefixGrouping: boolean;
  readonly isDone: () => Promise<boolean>;
}

/** @throws {InterruptedError} by Ctrl-C, and by SIGTERM when the running lines have ended */
async function work(
  store: JobStore,
  batchId: string,
  { server, numSessions, figures, isDone, prefixGrouping }: Work,
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
      concurrency: numSessions,
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

/** A file of results; none when there are no results of its kind, except the output. */
async function writeResults(store: JobStore, batchId: string, kind: ResultKind, path: string): Promise<void> {
  const { batchResults } = await import('@winnow/server');
  const lines = batchResults(store, batchId, kind);
  const first = await lines.next();
  if (first.done === true && kind === 'errors') {
    await rm(path, { force: true });
    return;
  }
  const sink = await fileSink(path);
  const encoder = new TextEncoder();
  try {
    if (first.done !== true) await sink.write(encoder.encode(first.value));
    for await (const line of lines) await sink.write(encoder.encode(line));
  } catch (error) {
    await sink.abort();
    throw error;
  }
  await sink.close();
}

interface Usage {
  readonly prompt_tokens?: number;
  readonly completion_tokens?: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number };
}

/** What this run of the command did. */
class BatchFigures {
  numAnswered = 0;
  promptTokens = 0;
  cachedTokens = 0;
  generatedTokens = 0;
  readonly #startMs: number;

  constructor(startMs: number) {
    this.#startMs = startMs;
  }

  seconds(): number {
    return (performance.now() - this.#startMs) / 1000;
  }

  counted(handler: JobHandler): JobHandler {
    return async (job, context) => {
      const result = await handler(job, context);
      const { usage = {} } = (JSON.parse(result) as { body: { usage?: Usage } }).body;
      this.numAnswered++;
      this.promptTokens += usage.prompt_tokens ?? 0;
      this.generatedTokens += usage.completion_tokens ?? 0;
      this.cachedTokens += usage.prompt_tokens_details?.cached_tokens ?? 0;
      return result;
    };
  }
}

interface BatchOutcome {
  readonly completed: number;
  readonly failed: number;
  readonly paths: BatchPaths;
}

async function report(
  figures: BatchFigures,
  { completed, failed, paths }: BatchOutcome,
  flags: BatchFlags,
  { out, warn }: CommandContext,
): Promise<void> {
  const { numAnswered, promptTokens, cachedTokens, generatedTokens } = figures;
  const seconds = figures.seconds();
  if (flags.json === true) {
    const errors = failed === 0 ? {} : { errors: paths.errors };
    const files = { output: paths.output, ...errors };
    const tokens = { promptTokens, cachedTokens, generatedTokens };
    await out.write(
      `${JSON.stringify({ lines: completed + failed, answered: completed, failed, ...files, seconds, ...tokens })}\n`,
    );
    return;
  }
  const failures = failed === 0 ? '' : `, ${failed} failed (${paths.errors})`;
  warn(`${completed} of ${completed + failed} lines answered in ${paths.output}${failures}`);
  if (numAnswered === 0) return;
  const share = promptTokens === 0 ? 0 : Math.round((100 * cachedTokens) / promptTokens);
  const rate = Number((numAnswered / seconds).toPrecision(3));
  warn(
    `${numAnswered} in ${Number(seconds.toPrecision(3))} s: ${rate} lines/s, ${promptTokens} prompt tokens ` +
      `(${share}% from shared prefixes), ${generatedTokens} generated tokens`,
  );
}
