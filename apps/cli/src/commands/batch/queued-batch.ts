/** A batch whose lines the workers of a queue answer. */
import type { JobStore } from '@winnow/jobs';
import { UsageError } from '../../errors/errors.js';
import type { CommandContext } from '../command-host.js';
import { placedId, runQueued } from '../queue/queued-work.js';
import { enqueue, idOf, pathsOf, report, writeResults } from './batch-files.js';
import type { BatchFlags } from './command.js';

/** Flags of models, which are loaded by workers. */
const modelFlags: Readonly<Partial<Record<keyof BatchFlags, string>>> = {
  model: '--model',
  modelId: '--model-id',
  embeddingModel: '--embedding-model',
  embeddingModelId: '--embedding-model-id',
  reranker: '--reranker',
  rerankerId: '--reranker-id',
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
  const batchId = placedId(await idOf(input, flags, context), paths.output);
  const work = {
    ...{ url, batchId, unit: 'lines' as const },
    enqueue: async (store: JobStore) => (await enqueue(store, batchId, input, flags, context)).numLines,
    async finish(store: JobStore): Promise<void> {
      await writeResults(store, batchId, 'output', paths.output);
      await writeResults(store, batchId, 'errors', paths.errors);
      const { completed, failed } = await store.counts(batchId);
      await report(undefined, { completed, failed, paths }, flags, context);
    },
  };
  await runQueued(work, flags.cancel === true, context);
}
