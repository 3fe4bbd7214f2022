/** A job store in Redis, for processes on any number of machines. */
import { checkInteger, checkText, type JobStore } from '@winnow/jobs';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { ScriptConnection } from './connection.node.js';
import { ScriptJobStore } from './script-job-store.node.js';
import { sourceOf } from './source.js';

export interface RedisJobStoreOptions {
  /** Prefix of all keys of the store, so that one server can hold several stores. Default `winnow-jobs`. */
  readonly prefix?: string;
  /** Maximum time in milliseconds that a call waits for a server that does not answer, for example during a restart. Default 60 000. */
  readonly maxWaitMs?: number;
  /** Accept a server that loses jobs when it ends or is full. Default false: it must have `appendonly yes` and no eviction. */
  readonly isVolatileAllowed?: boolean;
  /** Interval in milliseconds at which events are polled. Default 200. */
  readonly pollMs?: number;
  /** Milliseconds since 1970. Default: the clock of the server. */
  readonly now?: () => number;
}

const optionNames: OptionNames<RedisJobStoreOptions> = {
  prefix: true,
  maxWaitMs: true,
  isVolatileAllowed: true,
  pollMs: true,
  now: true,
};
/**
 * Opens the store, which processes on any number of machines may share. Once a call has returned, its effect survives the end of
 * every process, including the server.
 * @param url `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS
 * @throws {ArgumentError} for an invalid URL or option
 * @throws {IoError} when the server cannot be reached, or would lose jobs
 */
export async function openRedisJobStore(url: string, options: RedisJobStoreOptions = {}): Promise<JobStore> {
  checkOptions(options, optionNames);
  const { prefix = 'winnow-jobs', maxWaitMs = 60_000, isVolatileAllowed = false, pollMs = 200, now } = options;
  if (!/^rediss?:$/.test(URL.parse(url)?.protocol ?? '')) {
    throw new ArgumentError({ argument: 'url', expected: 'redis://HOST or rediss://HOST', actual: sourceOf(url) });
  }
  checkText('prefix', prefix);
  checkInteger('maxWaitMs', maxWaitMs, 1);
  checkInteger('pollMs', pollMs, 1);
  const connection = await ScriptConnection.open(url, `{${prefix}}`, maxWaitMs, isVolatileAllowed);
  return new ScriptJobStore(connection, now, pollMs);
}
