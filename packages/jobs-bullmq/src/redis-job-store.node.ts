/** A job store in Redis, for processes of any number of machines. */
import { checkInteger, checkText, type JobStore } from '@winnow/jobs';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { ScriptConnection } from './connection.node.js';
import { ScriptJobStore } from './script-job-store.node.js';
import { sourceOf } from './source.js';

export interface RedisJobStoreOptions {
  /** Begins all keys of the store, so that several stores fit one server. Default `winnow-jobs`. */
  readonly prefix?: string;
  /** Time in milliseconds that a call waits for a server that does not answer, such as one that is restarted. Default 60 000. */
  readonly maxWaitMs?: number;
  /** Whether the server may lose jobs when it ends or is full. Default false: it must have `appendonly yes` and no eviction. */
  readonly isVolatileAllowed?: boolean;
  /** Time in milliseconds between looks for events. Default 200. */
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
 * Opens the store, which processes of any number of machines may share. What a call has returned survives the end of every
 * process, also of the server.
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
