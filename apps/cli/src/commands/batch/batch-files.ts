/** What every batch has: an input, files of results, and an identity. */
import { createHash } from 'node:crypto';
import type { JobStore } from '@winnow/jobs';
import type { EnqueuedLines, ResultKind } from '@winnow/server';
import { nameOf, readFrom, removeAt, writeTo } from '../../models/blobs.js';
import type { CommandContext } from '../command-host.js';
import { maxAttempts } from '../queue/queued-work.js';
import type { BatchFlags } from './command.js';
import type { LineFigures } from './figures.js';

export interface BatchPaths {
  readonly input: string;
  readonly output: string;
  readonly errors: string;
  /**
   * The file of the job store, which exists until everything is written. It is in the working folder if the output is
   * not a local file.
   */
  readonly jobs: string;
}

export function pathsOf(input: string, { output, errors }: BatchFlags): BatchPaths {
  const bare = (path: string): string => path.replace(/\.jsonl$/i, '');
  const outputPath = output ?? `${bare(nameOf(input))}.output.jsonl`;
  return {
    input,
    output: outputPath,
    errors: errors ?? `${bare(outputPath)}.errors.jsonl`,
    jobs: `${nameOf(outputPath)}.jobs`,
  };
}

/**
 * The identity of a batch: its input and the models that answer it. A changed input, or another model, makes another
 * batch.
 */
export async function idOf(input: string, flags: BatchFlags, { signal }: CommandContext): Promise<string> {
  const hash = createHash('sha256');
  for await (const bytes of await readFrom('IN', input, signal)) hash.update(bytes);
  const { model, embeddingModel, modelId, embeddingModelId, reranker, rerankerId } = flags;
  const models = [model, embeddingModel, modelId, embeddingModelId, reranker, rerankerId];
  return `${hash.digest('hex')} ${JSON.stringify(models)}`;
}

export async function enqueue(
  store: JobStore,
  batchId: string,
  input: string,
  { prefixGrouping }: BatchFlags,
  { progress, signal, warn }: CommandContext,
): Promise<EnqueuedLines> {
  const { enqueueBatchLines } = await import('@winnow/server');
  const before = await store.counts(batchId);
  progress.wait(`read ${input}`);
  const enqueued = await enqueueBatchLines(store, batchId, await readFrom('IN', input, signal), {
    maxAttempts,
    prefixGrouping,
    signal,
  });
  progress.clear();
  const numDone = before.completed + before.failed;
  if (numDone > 0) warn(`continuing: ${numDone} of ${enqueued.numLines} lines are done`);
  return enqueued;
}

/** Writes a file or blob of results. Without results of its kind there is none, except for the output. */
export async function writeResults(store: JobStore, batchId: string, kind: ResultKind, path: string): Promise<void> {
  const { batchResults } = await import('@winnow/server');
  const lines = batchResults(store, batchId, kind);
  const first = await lines.next();
  if (first.done === true && kind === 'errors') return removeAt('--errors', path);
  async function* content(): AsyncGenerator<Uint8Array, void, void> {
    const encoder = new TextEncoder();
    if (first.done !== true) yield encoder.encode(first.value);
    for await (const line of lines) yield encoder.encode(line);
  }
  await writeTo(kind === 'errors' ? '--errors' : '--output', path, content());
}

export interface BatchOutcome {
  readonly completed: number;
  readonly failed: number;
  readonly paths: BatchPaths;
}

/** @param figures of a command that answers the lines itself */
export async function report(
  figures: LineFigures | undefined,
  { completed, failed, paths }: BatchOutcome,
  flags: BatchFlags,
  { out, warn }: CommandContext,
): Promise<void> {
  if (flags.json === true) {
    const errors = failed === 0 ? {} : { errors: paths.errors };
    const files = { output: paths.output, ...errors };
    const own = figures === undefined ? {} : { seconds: figures.seconds(), ...figures.tokens() };
    await out.write(
      `${JSON.stringify({ lines: completed + failed, answered: completed, failed, ...files, ...own })}\n`,
    );
    return;
  }
  const failures = failed === 0 ? '' : `, ${failed} failed (${paths.errors})`;
  warn(`${completed} of ${completed + failed} lines answered in ${paths.output}${failures}`);
  if (figures !== undefined && figures.numAnswered > 0) warn(figures.summary());
}
