/** The queue of `--queue URL`, and its parts. */
import type { JobStore } from '@winnow/jobs';
import type { BatchEndpoint } from '@winnow/server';
import type { Option } from 'commander';
import { flag } from '../../flags/builders.js';
import { refuse } from '../../flags/parse-values.js';
import type { CliIo } from '../../terminal/io.js';

const queueForms = 'a path, sqlite:PATH, redis://HOST, rediss://HOST or postgres://HOST/DATABASE';

export function queueOption(description: string): Option {
  return flag('--queue <url>', `${description}: ${queueForms} (default: WINNOW_QUEUE, if set)`);
}

/** The URL of `--queue`, or that of the environment, which process lists do not show with its password; an empty `--queue` is none. */
export function queueOf({ queue }: { readonly queue?: string }, { env }: Pick<CliIo, 'env'>): string | undefined {
  return (queue ?? env['WINNOW_QUEUE']) || undefined;
}

/** A letter and a colon begin a Windows path. */
const schemePattern = /^([a-z][a-z0-9+.-]+):/i;

/**
 * Opens the queue, and creates it if there is none.
 * @throws {UsageError} for another scheme @throws {IoError} @throws {FormatError}
 */
export async function openQueue(url: string): Promise<JobStore> {
  const scheme = schemePattern.exec(url)?.[1]?.toLowerCase();
  if (scheme === 'redis' || scheme === 'rediss') {
    const { openRedisJobStore } = await import('@winnow/jobs-bullmq');
    return openRedisJobStore(url);
  }
  if (scheme === 'postgres' || scheme === 'postgresql') {
    const { openPostgresJobStore } = await import('@winnow/jobs-bullmq/postgres');
    return openPostgresJobStore(url);
  }
  if (url === '' || (scheme !== undefined && scheme !== 'sqlite'))
    throw refuse('--queue', queueForms, withoutPassword(url));
  const { openSqliteJobStore } = await import('@winnow/jobs/node');
  return openSqliteJobStore(scheme === undefined ? url : url.slice('sqlite:'.length));
}

/** For logs and errors. A path stays as it is. */
export function withoutPassword(url: string): string {
  return url.replace(/^([a-z][a-z0-9+.-]+:\/\/)(?:.*@)?([^?]*).*/is, '$1$2');
}

/** Lines that name no model belong to the only one of their kind. */
export async function unnamedQueues(url: BatchEndpoint, numModels: number): Promise<string[]> {
  const { batchQueueOf } = await import('@winnow/server');
  return numModels === 1 ? [batchQueueOf(url, undefined)] : [];
}
