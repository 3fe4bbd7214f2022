/** The tables of a job store in a SQLite file, and how it is opened. */
import type { DatabaseSync } from 'node:sqlite';
import { FormatError, IoError } from '@winnow/tensor';
import { setTimeout as sleep } from 'node:timers/promises';

/** Marks the file as a job store, in the header field that SQLite reserves for applications: "WJob". */
const applicationId = 0x574a6f62;
const schemaVersion = 2;
/** Time that a statement waits for another process's transaction. */
const busyTimeoutMs = 10_000;

/**
 * - `place` orders what can be claimed from a queue: by priority, then batches in the order in which they were created, then
 *   groups; suspects come after the others of their batch. The queue comes first, so that claims do not scan other queues.
 * - Partial indexes hold only what claims look for: waiting jobs, and leases and expiry times of jobs that have one.
 */
const tables = `
CREATE TABLE batches (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  batch INTEGER NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
  custom_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  queue TEXT NOT NULL,
  payload TEXT NOT NULL,
  grouping TEXT NOT NULL,
  priority INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  expires_at REAL,
  state TEXT NOT NULL DEFAULT 'waiting',
  attempts INTEGER NOT NULL DEFAULT 0,
  lapses INTEGER NOT NULL DEFAULT 0,
  suspect INTEGER NOT NULL DEFAULT 0,
  available_at REAL NOT NULL DEFAULT 0,
  lease_until REAL,
  token TEXT,
  worker TEXT,
  progress REAL NOT NULL DEFAULT 0,
  result TEXT,
  error_code TEXT,
  error_message TEXT,
  error_detail TEXT,
  started_at REAL,
  ended_at REAL,
  UNIQUE (batch, custom_id),
  UNIQUE (batch, position)
);
CREATE INDEX place ON jobs (queue, priority DESC, batch, suspect, grouping, position) WHERE state = 'waiting';
CREATE INDEX leases ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX expiries ON jobs (expires_at) WHERE state = 'waiting' AND expires_at IS NOT NULL;
CREATE INDEX states ON jobs (batch, state);
CREATE TABLE events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  batch INTEGER NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
  custom_id TEXT NOT NULL,
  event TEXT NOT NULL,
  at REAL NOT NULL
);
CREATE INDEX events_of_batch ON events (batch);
PRAGMA application_id = ${applicationId};
PRAGMA user_version = ${schemaVersion};
`;

/**
 * Opens the file, and creates the tables in a new one.
 * @throws {IoError} where Node has no SQLite, or the file cannot be opened
 * @throws {FormatError} for a file that is not a job store, or has another version
 */
export async function openDatabase(path: string): Promise<DatabaseSync> {
  const sqlite = await import('node:sqlite').catch((cause: unknown) => {
    const message = `a job store in a file needs node:sqlite of Node 22.13 or later, got Node ${process.versions.node}`;
    throw new IoError({ source: path, message }, { cause });
  });
  let database: DatabaseSync | undefined;
  try {
    database = new sqlite.DatabaseSync(path);
    database.exec(`PRAGMA busy_timeout = ${busyTimeoutMs}; PRAGMA foreign_keys = ON`);
    await whenFree(database, 'PRAGMA journal_mode = WAL');
    // A killed process loses nothing. A power failure may lose the last results, which are computed again.
    database.exec('PRAGMA synchronous = NORMAL');
    prepare(database, path);
    return database;
  } catch (error) {
    database?.close();
    throw databaseError(path, error);
  }
}

/** Retries a change of the journal mode, which does not wait for other processes that open the file at the same time. */
async function whenFree(database: DatabaseSync, statement: string): Promise<void> {
  const numTries = 100;
  for (let number = 1; ; number++) {
    try {
      database.exec(statement);
      return;
    } catch (error) {
      if (number === numTries || !/locked|busy/.test(String(error))) throw error;
      await sleep(busyTimeoutMs / numTries);
    }
  }
}

function prepare(database: DatabaseSync, path: string): void {
  database.exec('BEGIN IMMEDIATE');
  try {
    const read = (name: string): number => Number(database.prepare(`PRAGMA ${name}`).get()?.[name]);
    const { count } = database.prepare('SELECT count(*) AS count FROM sqlite_schema').get() as { count: number };
    if (count === 0) database.exec(tables);
    const [actual, version] = [read('application_id'), read('user_version')];
    if (actual !== applicationId) throw notAStore(path, 'application_id', applicationId, actual);
    if (version !== schemaVersion) throw notAStore(path, 'user_version', schemaVersion, version);
    database.exec('COMMIT');
  } catch (error) {
    database.exec('ROLLBACK');
    throw error;
  }
}

function notAStore(source: string, field: string, expected: number, actual: number): FormatError {
  const message = `expected ${expected} of a job store of this version of Winnow, got ${actual}`;
  return new FormatError({ source, field, message });
}

/** Converts errors of SQLite to errors of Winnow. */
export function databaseError(path: string, error: unknown): Error {
  const isOfSqlite = error instanceof Error && (error as { code?: unknown }).code === 'ERR_SQLITE_ERROR';
  if (!isOfSqlite) return error instanceof Error ? error : new Error(String(error));
  // SQLITE_NOTADB
  if ((error as { errcode?: unknown }).errcode === 26) {
    return new FormatError({ source: path, field: 'header', message: 'not a SQLite database' }, { cause: error });
  }
  return new IoError({ source: path, message: `SQLite: ${error.message}` }, { cause: error });
}
