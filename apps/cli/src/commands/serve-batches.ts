/** Files and batches of `winnow serve`: a folder, and a queue in it or elsewhere. */
import { join } from 'node:path';
import { makeFolder } from '@winnow/bytes/node';
import type { JobStore } from '@winnow/jobs';
import type { ServerOptions } from '@winnow/server';
import type { Command } from 'commander';
import { UsageError } from '../errors/errors.js';
import { addGroup, flag, numberOption, numberRules } from '../flags/builders.js';
import { isBlobUrl, openBlobs } from '../models/blobs.js';
import type { CliIo } from '../terminal/io.js';
import { openQueue, queueOf, queueOption, unnamedQueues } from './queue/open-queue.js';

export interface ServeBatchFlags {
  readonly batchDir?: string;
  readonly queue?: string;
  readonly batchSessions?: number;
}

/** Models of a server, by kind. */
type Served = Readonly<Record<'models' | 'embeddingModels' | 'rerankers', readonly { readonly id: string }[]>>;

interface OpenBatches {
  readonly optionsOf: (served: Served) => Promise<Pick<ServerOptions, 'batches'>>;
  close(): Promise<void>;
}

export function addServeBatchOptions(command: Command): void {
  addGroup(command, {
    heading: 'Batches',
    common: [
      flag(
        '--batch-dir <folder>',
        'serve /v1/files and /v1/batches, which are kept in this folder or s3://BUCKET/PREFIX',
      ),
      queueOption('share the lines with other processes (default: a queue in the folder)'),
      numberOption(
        '--batch-sessions <n>',
        'maximum number of lines that this server answers at once; 0: only workers do (default: all slots but one)',
        numberRules.fromZero,
      ),
    ],
  });
}

/**
 * The folder, which is created if missing, or the place in an object store belongs to one server. From a queue of its
 * own the server takes all lines; from a shared queue, those for its models.
 */
export async function openBatches(flags: ServeBatchFlags, io: Pick<CliIo, 'env'>): Promise<OpenBatches | undefined> {
  const { batchDir, batchSessions: concurrency } = flags;
  if (batchDir === undefined) {
    if (flags.queue === undefined && concurrency === undefined) return undefined;
    throw new UsageError(`${flags.queue === undefined ? '--batch-sessions' : '--queue'}: requires --batch-dir`);
  }
  const queue = queueOf(flags, io);
  const isRemote = isBlobUrl(batchDir);
  if (isRemote && queue === undefined) throw new UsageError('--batch-dir: a URL requires --queue, where the lines are');
  const blobs = await openBlobs('--batch-dir', isRemote ? batchDir : join(batchDir, 'blobs'));
  if (!blobs.canList) throw new UsageError(`--batch-dir: expected a folder or s3://BUCKET/PREFIX, got ${batchDir}`);
  if (!isRemote) await makeFolder(batchDir);
  const jobs: JobStore = await openQueue(queue ?? join(batchDir, 'jobs.db'));
  const optionsOf = async (served: Served): Promise<Pick<ServerOptions, 'batches'>> => {
    const queues = queue === undefined ? {} : { queues: await queuesOf(served) };
    return { batches: { jobs, blobs, ...queues, ...(concurrency === undefined ? {} : { concurrency }) } };
  };
  return { optionsOf, close: () => jobs.close() };
}

async function queuesOf({ models, embeddingModels, rerankers }: Served): Promise<string[]> {
  const unnamed = await unnamedQueues('/v1/completions', models.length);
  const unnamedTexts = await unnamedQueues('/v1/embeddings', embeddingModels.length);
  const unnamedRanking = await unnamedQueues('/v1/rerank', rerankers.length);
  const named = new Set([...models, ...embeddingModels, ...rerankers].map(({ id }) => id));
  return [...named, ...unnamed, ...unnamedTexts, ...unnamedRanking];
}
