/** A job store in one SQLite file, for all processes of one machine. */
import { randomUUID } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import { checkOptions, ReleasedError, type OptionNames } from '@winnow/tensor';
import {
  checkInteger,
  checkJobs,
  checkNumber,
  checkText,
  eventOptionNames,
  failOptionNames,
  listOptionNames,
  resolveClaimOptions,
  resolveEnqueueOptions,
} from '../checks.js';
import {
  lapsedError,
  noCounts,
  retryDelayMs,
  type ClaimedJob,
  type ClaimOptions,
  type Enqueued,
  type EnqueueOptions,
  type EventOptions,
  type FailOptions,
  type FailState,
  type JobCounts,
  type JobError,
  type JobEvent,
  type JobInfo,
  type JobState,
  type JobStore,
  type LeaseState,
  type ListOptions,
  type NewJob,
  type QueueInfo,
} from '../job-store.js';
import { databaseError, openDatabase } from './schema.node.js';
import {
  cancelStatement,
  claimStatement,
  comparePlaces,
  depthsStatement,
  enqueueStatement,
  eventColumns,
  holderStatement,
  jobColumns,
  jobInfo,
  nextStatement,
  queueInfos,
  Statements,
  sweeps,
  waitingQueuesStatement,
  type ChangedRow,
  type ClaimedRow,
  type DepthRow,
  type HolderChange,
  type JobRow,
  type NextRow,
  type Parameter,
} from './statements.node.js';

export interface SqliteJobStoreOptions {
  /** Milliseconds since 1970. Default: the clock of the machine. */
  readonly now?: () => number;
  /** Interval in milliseconds at which events of other processes are polled. Default 200. */
  readonly pollMs?: number;
}

const optionNames: OptionNames<SqliteJobStoreOptions> = { now: true, pollMs: true };

const eventsPerRead = 500;

/**
 * Opens the store, which any number of processes of this machine may share; not on a network file system. Once a call has
 * returned, its effect survives the end of every process, also by SIGKILL. Calls block the event loop during their transaction.
 * @param path created if missing; `PATH-wal` and `PATH-shm` are beside it while it is open
 * @throws {IoError} where Node has no `node:sqlite` (before 22.13), or the file cannot be opened
 * @throws {FormatError} for a file that is not a job store
 */
export async function openSqliteJobStore(path: string, options: SqliteJobStoreOptions = {}): Promise<JobStore> {
  checkOptions(options, optionNames);
  const { now = () => performance.timeOrigin + performance.now(), pollMs = 200 } = options;
  checkInteger('pollMs', pollMs, 1);
  return new SqliteJobStore(path, await openDatabase(path), now, pollMs);
}

class SqliteJobStore implements JobStore {
  readonly #path: string;
  readonly #database: DatabaseSync;
  readonly #statements: Statements;
  readonly #now: () => number;
  readonly #pollMs: number;
  /** Woken by events of this process. */
  readonly #listeners = new Set<() => void>();
  #isOpen = true;

  constructor(path: string, database: DatabaseSync, now: () => number, pollMs: number) {
    this.#path = path;
    this.#database = database;
    this.#statements = new Statements(database);
    this.#now = now;
    this.#pollMs = pollMs;
  }

  async enqueue(batchId: string, jobs: readonly NewJob[], options: EnqueueOptions = {}): Promise<Enqueued> {
    checkJobs(batchId, jobs);
    const { queue, priority, maxAttempts, expiresAtMs = null } = resolveEnqueueOptions(options);
    return this.#change((statements) => {
      statements.run('INSERT INTO batches (name) VALUES (?) ON CONFLICT DO NOTHING', batchId);
      const batch = this.#batchOf(batchId) as number;
      const conflicts: number[] = [];
      let numAdded = 0;
      for (const { customId, index, payload, group = '', error, queue: own = queue } of jobs) {
        const fields: Parameter[] = [batch, customId, index, own, payload, group, priority, maxAttempts, expiresAtMs];
        const state = error === undefined ? 'waiting' : 'failed';
        const ended = error === undefined ? null : this.#now();
        if (statements.run(enqueueStatement, ...fields, state, ...errorFields(error), ended) === 1) {
          numAdded++;
          this.#note({ batch, custom_id: customId, state });
          continue;
        }
        const known = 'SELECT position FROM jobs WHERE batch = ? AND custom_id = ?';
        const { position } = statements.get<{ position: number }>(known, batch, customId) ?? {};
        if (position !== index) conflicts.push(index);
      }
      return { numAdded, conflicts };
    });
  }

  async claim(options: ClaimOptions): Promise<ClaimedJob[]> {
    const { worker, leaseMs, limit, alone } = resolveClaimOptions(options);
    const { queues } = options;
    if (queues?.length === 0) return [];
    return this.#change((statements) => {
      const now = this.#sweep();
      const names = queues ?? statements.all<{ name: string }>(waitingQueuesStatement).map(({ name }) => name);
      const found = [...new Set(names)].flatMap((name) => statements.all<NextRow>(nextStatement, name, now, limit));
      const next = found.toSorted(comparePlaces).slice(0, limit);
      const firstSuspect = next.findIndex(({ suspect }) => suspect === 1);
      const taken = firstSuspect < 0 ? next : next.slice(0, firstSuspect === 0 && alone ? 1 : firstSuspect);
      return taken.map(({ id, suspect }) => {
        const token = randomUUID();
        const row = statements.get<ClaimedRow>(claimStatement, token, worker, now + leaseMs, now, id) as ClaimedRow;
        const { batch, ...job } = row;
        this.#note({ batch, custom_id: job.customId, state: 'running' });
        return { ...job, token, isSuspect: suspect === 1 };
      });
    });
  }

  async heartbeat(job: ClaimedJob, leaseMs: number, progress = 0): Promise<LeaseState> {
    checkInteger('leaseMs', leaseMs, 1);
    checkNumber('progress', progress);
    return this.#asHolder(job, 'heartbeat', [this.#now() + leaseMs, progress], progress > 0 ? 'progress' : undefined);
  }

  async complete(job: ClaimedJob, result: string): Promise<LeaseState> {
    return this.#asHolder(job, 'complete', [result, this.#now()], 'completed');
  }

  async fail(job: ClaimedJob, error: JobError, options: FailOptions = {}): Promise<FailState> {
    checkOptions(options, failOptionNames);
    const { retry = true, delayMs = retryDelayMs(job.attempt) } = options;
    checkNumber('delayMs', delayMs);
    const now = this.#now();
    const query =
      'SELECT max_attempts FROM jobs WHERE custom_id = ? AND batch = (SELECT id FROM batches WHERE name = ?)';
    const row = this.#read((each) => each.get<{ max_attempts: number }>(query, job.customId, job.batchId));
    const isLast = !retry || job.attempt >= (row?.max_attempts ?? 0);
    const state = isLast
      ? this.#asHolder(job, 'fail', [now, ...errorFields(error)], 'failed')
      : this.#asHolder(job, 'retry', [now + delayMs, ...errorFields(error)], 'waiting');
    return state === 'held' ? (isLast ? 'failed' : 'waiting') : state;
  }

  async release(job: ClaimedJob): Promise<LeaseState> {
    return this.#asHolder(job, 'release', [], 'waiting');
  }

  async cancel(batchId: string): Promise<number> {
    return this.#change((statements) => {
      this.#sweep();
      const rows = statements.all<ChangedRow>(cancelStatement, this.#now(), batchId);
      for (const row of rows) this.#note(row);
      return rows.length;
    });
  }

  async list(batchId: string, options: ListOptions = {}): Promise<JobInfo[]> {
    checkOptions(options, listOptionNames);
    const { states, after = -1, limit = 100 } = options;
    checkInteger('limit', limit, 1);
    const ofStates = states === undefined ? '' : `AND state IN (${states.map(() => '?').join(', ')})`;
    const sql = `SELECT ${jobColumns} FROM jobs WHERE batch = (SELECT id FROM batches WHERE name = ?)
      AND position > ? ${ofStates} ORDER BY position LIMIT ?`;
    return this.#change((statements) => {
      this.#sweep();
      return statements.all<JobRow>(sql, batchId, after, ...(states ?? []), limit).map(jobInfo);
    });
  }

  async counts(batchId: string): Promise<JobCounts> {
    const sql = 'SELECT state, count(*) AS count FROM jobs WHERE batch = ? GROUP BY state';
    return this.#change((statements) => {
      this.#sweep();
      const counts = noCounts();
      const rows = statements.all<{ state: JobState; count: number }>(sql, this.#batchOf(batchId) ?? -1);
      for (const { state, count } of rows) counts[state] = count;
      return counts;
    });
  }

  async queues(): Promise<QueueInfo[]> {
    return this.#change((statements) => {
      this.#sweep();
      return queueInfos(statements.all<DepthRow>(depthsStatement));
    });
  }

  async batches(): Promise<string[]> {
    const rows = this.#read((each) => each.all<{ name: string }>('SELECT name FROM batches ORDER BY id'));
    return rows.map(({ name }) => name);
  }

  async remove(batchId: string): Promise<boolean> {
    return this.#change((statements) => statements.run('DELETE FROM batches WHERE name = ?', batchId) === 1);
  }

  events(options: EventOptions): AsyncIterable<JobEvent> {
    checkOptions(options, eventOptionNames);
    const newest = "SELECT coalesce(max(seq), 0) AS seq FROM sqlite_sequence WHERE name = 'events'";
    const after = options.after ?? this.#read((each) => each.get<{ seq: number }>(newest)?.seq ?? 0);
    return this.#follow(options, after);
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#wake();
    this.#database.close();
  }

  async *#follow({ batchId, signal }: EventOptions, after: number): AsyncGenerator<JobEvent, void, void> {
    const ofBatch = batchId === undefined ? '' : 'AND batch = (SELECT id FROM batches WHERE name = ?)';
    const sql = `SELECT ${eventColumns} FROM events WHERE sequence > ? ${ofBatch} ORDER BY sequence LIMIT ${eventsPerRead}`;
    let last = after;
    while (!signal.aborted && this.#isOpen) {
      const found = this.#read((each) => each.all<JobEvent>(sql, last, ...(batchId === undefined ? [] : [batchId])));
      for (const event of found) {
        if (signal.aborted) return;
        last = event.sequence;
        yield { ...event };
      }
      if (found.length === 0) await this.#nextEvent(signal);
    }
  }

  #nextEvent(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#listeners.delete(done);
        signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, this.#pollMs);
      this.#listeners.add(done);
      signal.addEventListener('abort', done);
    });
  }

  #wake(): void {
    for (const listener of this.#listeners) listener();
  }

  /** What the holder of a job may do. @param event undefined: none */
  #asHolder(
    { batchId, customId, token }: ClaimedJob,
    change: HolderChange,
    fields: readonly Parameter[],
    event: JobEvent['event'] | undefined,
  ): LeaseState {
    checkText('job.token', token);
    return this.#change((statements) => {
      const [row] = statements.all<ChangedRow>(holderStatement(change), ...fields, batchId, customId, token);
      if (row !== undefined) {
        if (event !== undefined) this.#note({ ...row, state: event });
        return 'held';
      }
      const query = 'SELECT state FROM jobs WHERE custom_id = ? AND batch = (SELECT id FROM batches WHERE name = ?)';
      const { state } = statements.get<{ state: JobState }>(query, customId, batchId) ?? {};
      return state === 'canceled' ? 'canceled' : 'lost';
    });
  }

  /** Moves jobs whose lease lapsed or that expired. @returns the time */
  #sweep(): number {
    const now = this.#now();
    const [expired, failed, lapsed] = sweeps;
    const errors = { code: lapsedError.code, message: lapsedError.message };
    for (const [sql, parameters] of [
      [expired, { now }],
      [failed, { now, ...errors }],
      [lapsed, { now }],
    ] as const) {
      for (const row of this.#statements.allNamed<ChangedRow>(sql, parameters)) this.#note(row);
    }
    return now;
  }

  #note({ batch, custom_id: customId, state }: ChangedRow): void {
    const sql = 'INSERT INTO events (batch, custom_id, event, at) VALUES (?, ?, ?, ?)';
    this.#statements.run(sql, batch, customId, state, this.#now());
  }

  #batchOf(name: string): number | undefined {
    return this.#statements.get<{ id: number }>('SELECT id FROM batches WHERE name = ?', name)?.id;
  }

  #read<T>(work: (statements: Statements) => T): T {
    if (!this.#isOpen) throw new ReleasedError(this.#path);
    try {
      return work(this.#statements);
    } catch (error) {
      throw databaseError(this.#path, error);
    }
  }

  #change<T>(work: (statements: Statements) => T): T {
    const result = this.#read((statements) => statements.transaction(() => work(statements)));
    this.#wake();
    return result;
  }
}

function errorFields(error: JobError | undefined): [code: Parameter, message: Parameter, detail: Parameter] {
  return [error?.code ?? null, error?.message ?? null, error?.detail ?? null];
}
