/** A job store in PostgreSQL, for processes on any number of machines. */
import { checkInteger, type JobStore } from '@winnow/jobs';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { FunctionConnection } from './postgres-connection.node.js';
import { ScriptJobStore } from './script-job-store.node.js';
import { sourceOf } from './source.js';

export interface PostgresJobStoreOptions {
  /** Schema of its tables and functions, which is created if it is missing. Default `winnow_jobs`. */
  readonly schema?: string;
  /** Maximum time in milliseconds that a call waits for a server that does not answer, for example during a restart. Default 60 000. */
  readonly maxWaitMs?: number;
  /** Interval in milliseconds at which events are polled. Default 200. */
  readonly pollMs?: number;
  /** Milliseconds since 1970. Default: the clock of the server. */
  readonly now?: () => number;
}

const optionNames: OptionNames<PostgresJobStoreOptions> = { schema: true, maxWaitMs: true, pollMs: true, now: true };

/**
 * Opens the store, which processes on any number of machines may share. Once a call has returned, its effect survives the end of
 * every process, including the server, if the server has `fsync` and `synchronous_commit`.
 * @param url `postgres://[user:password@]host[:port]/database`; `?sslmode=verify-full` for TLS
 * @throws {ArgumentError} for an invalid URL or option
 * @throws {IoError} when the server cannot be reached
 * @throws {FormatError} for a schema that is not a job store, or has another version
 */
export async function openPostgresJobStore(url: string, options: PostgresJobStoreOptions = {}): Promise<JobStore> {
  checkOptions(options, optionNames);
  const { schema = 'winnow_jobs', maxWaitMs = 60_000, pollMs = 200, now } = options;
  if (!/^postgres(ql)?:$/.test(URL.parse(url)?.protocol ?? '')) {
    throw new ArgumentError({ argument: 'url', expected: 'postgres://HOST/DATABASE', actual: sourceOf(url) });
  }
  if (!/^[a-z_][a-z0-9_]{0,62}$/.test(schema)) {
    const expected = 'a name of at most 63 lowercase letters, digits and underscores';
    throw new ArgumentError({ argument: 'schema', expected, actual: schema });
  }
  checkInteger('maxWaitMs', maxWaitMs, 1);
  checkInteger('pollMs', pollMs, 1);
  return new ScriptJobStore(await FunctionConnection.open(url, schema, maxWaitMs), now, pollMs);
}
