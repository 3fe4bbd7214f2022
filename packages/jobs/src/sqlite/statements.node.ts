/** The statements of a job store in a SQLite file. Each belongs to a transaction of its caller. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { ClaimedJob, JobEvent, JobInfo, JobState, QueueInfo } from '../job-store.js';

export type Parameter = string | number | null;

/** What a claim returns. */
export type ClaimedRow = Omit<ClaimedJob, 'token' | 'isSuspect'> & { readonly batch: number };

export interface JobRow {
  readonly batchId: string;
  readonly customId: string;
  readonly position: number;
  readonly state: JobState;
  readonly attempts: number;
  readonly progress: number;
  readonly worker: string | null;
  readonly result: string | null;
  readonly error_code: string | null;
  readonly error_message: string | null;
  readonly error_detail: string | null;
  readonly started_at: number | null;
  readonly ended_at: number | null;
}

export const eventColumns = `sequence, (SELECT name FROM batches WHERE id = batch) AS batchId, custom_id AS customId, event, at AS atMs`;

export const jobColumns = `(SELECT name FROM batches WHERE id = batch) AS batchId, custom_id AS customId, position, state,
  attempts, progress, worker, result, error_code, error_message, error_detail, started_at, ended_at`;

const changed = 'RETURNING batch, custom_id, state';

/** A job whose workers disappeared this many times may be the cause, and is tried alone. */
const suspectLapses = 2;

/** Statements for jobs that expired or whose lease lapsed, with the parameter `now`. */
export const sweeps: readonly [expired: string, failed: string, lapsed: string] = [
  `UPDATE jobs SET state = 'expired', ended_at = :now
     WHERE state = 'waiting' AND expires_at <= :now ${changed}`,
  `UPDATE jobs SET state = 'failed', ended_at = :now, token = NULL, lease_until = NULL,
       error_code = :code, error_message = :message, error_detail = NULL
     WHERE state = 'running' AND lease_until <= :now AND attempts >= max_attempts ${changed}`,
  `UPDATE jobs SET state = CASE WHEN expires_at <= :now THEN 'expired' ELSE 'waiting' END,
       ended_at = CASE WHEN expires_at <= :now THEN :now END, token = NULL, lease_until = NULL, lapses = lapses + 1,
       suspect = lapses + 1 >= ${suspectLapses} OR attempts + 1 >= max_attempts
     WHERE state = 'running' AND lease_until <= :now ${changed}`,
];

export const enqueueStatement = `INSERT INTO jobs
  (batch, custom_id, position, queue, payload, grouping, priority, max_attempts, expires_at,
   state, error_code, error_message, error_detail, ended_at)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`;

/** A job that could be claimed. */
export interface NextRow {
  readonly id: number;
  readonly priority: number;
  readonly batch: number;
  readonly suspect: 0 | 1;
  readonly grouping: string;
  readonly position: number;
}

/** The next jobs of a queue, in order. */
export const nextStatement: string = `SELECT id, priority, batch, suspect, grouping, position FROM jobs
  WHERE state = 'waiting' AND queue = ? AND available_at <= ?
  ORDER BY priority DESC, batch, suspect, grouping, position LIMIT ?`;

/** Orders jobs of several queues as `nextStatement` does for one. SQLite compares texts by their bytes. */
export function comparePlaces(a: NextRow, b: NextRow): number {
  return (
    b.priority - a.priority ||
    a.batch - b.batch ||
    a.suspect - b.suspect ||
    Buffer.compare(Buffer.from(a.grouping), Buffer.from(b.grouping)) ||
    a.position - b.position
  );
}

/** Queues with waiting jobs: skips through the index `place` from one to the next. */
export const waitingQueuesStatement: string = `
  WITH RECURSIVE queues (name) AS (
    SELECT min(queue) FROM jobs WHERE state = 'waiting'
    UNION ALL
    SELECT (SELECT min(queue) FROM jobs WHERE state = 'waiting' AND queue > name) FROM queues WHERE name IS NOT NULL
  )
  SELECT name FROM queues WHERE name IS NOT NULL`;

export interface DepthRow {
  readonly queue: string;
  /** Null in the row with the number of waiting jobs. */
  readonly worker: string | null;
  readonly count: number;
}

export const depthsStatement: string = `
  SELECT queue, NULL AS worker, count(*) AS count FROM jobs WHERE state = 'waiting' GROUP BY queue
  UNION ALL
  SELECT queue, worker, count(*) FROM jobs WHERE state = 'running' GROUP BY queue, worker
  ORDER BY queue, worker`;

export const claimStatement: string = `UPDATE jobs SET state = 'running', attempts = attempts + 1, token = ?, worker = ?,
    lease_until = ?, started_at = ?, progress = 0
  WHERE id = ? RETURNING (SELECT name FROM batches WHERE id = batch) AS batchId, custom_id AS customId,
    position AS "index", queue, payload, attempts AS attempt, batch`;

export type HolderChange = 'heartbeat' | 'complete' | 'retry' | 'fail' | 'release';

/** Columns that calls of a job's holder set. */
export const holderChanges: Readonly<Record<'heartbeat' | 'complete' | 'retry' | 'fail' | 'release', string>> = {
  heartbeat: 'lease_until = ?, progress = max(progress, ?)',
  complete: `state = 'completed', result = ?, ended_at = ?, progress = 1, token = NULL, lease_until = NULL,
    error_code = NULL, error_message = NULL, error_detail = NULL`,
  retry: `state = 'waiting', available_at = ?, error_code = ?, error_message = ?, error_detail = ?, token = NULL, lease_until = NULL`,
  fail: `state = 'failed', ended_at = ?, error_code = ?, error_message = ?, error_detail = ?, token = NULL, lease_until = NULL`,
  release: `state = 'waiting', attempts = attempts - 1, token = NULL, lease_until = NULL`,
};

export function holderStatement(change: HolderChange): string {
  return `UPDATE jobs SET ${holderChanges[change]} WHERE batch = (SELECT id FROM batches WHERE name = ?)
    AND custom_id = ? AND state = 'running' AND token = ? ${changed}`;
}

export const cancelStatement: string = `UPDATE jobs SET state = 'canceled', ended_at = ?, token = NULL, lease_until = NULL
  WHERE batch = (SELECT id FROM batches WHERE name = ?) AND state IN ('waiting', 'running') ${changed}`;

/** A job that entered a state. */
export interface ChangedRow {
  readonly batch: number;
  readonly custom_id: string;
  readonly state: JobEvent['event'];
}

/** Prepares each statement once. */
export class Statements {
  readonly #database: DatabaseSync;
  readonly #prepared = new Map<string, StatementSync>();

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  all<Row>(sql: string, ...parameters: readonly Parameter[]): Row[] {
    return this.#of(sql).all(...parameters) as Row[];
  }

  allNamed<Row>(sql: string, parameters: Readonly<Record<string, Parameter>>): Row[] {
    return this.#of(sql).all(parameters) as Row[];
  }

  get<Row>(sql: string, ...parameters: readonly Parameter[]): Row | undefined {
    return this.#of(sql).get(...parameters) as Row | undefined;
  }

  /** @returns the number of changed rows */
  run(sql: string, ...parameters: readonly Parameter[]): number {
    return Number(this.#of(sql).run(...parameters).changes);
  }

  /** Runs `work` in a transaction that excludes all other processes. */
  transaction<T>(work: () => T): T {
    this.#database.exec('BEGIN IMMEDIATE');
    try {
      const result = work();
      this.#database.exec('COMMIT');
      return result;
    } catch (error) {
      this.#database.exec('ROLLBACK');
      throw error;
    }
  }

  #of(sql: string): StatementSync {
    let statement = this.#prepared.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      this.#prepared.set(sql, statement);
    }
    return statement;
  }
}

export function queueInfos(rows: readonly DepthRow[]): QueueInfo[] {
  const byName = Map.groupBy(rows, ({ queue }) => queue);
  return [...byName].map(([queue, own]) => {
    const workers = own.flatMap(({ worker, count }) => (worker === null ? [] : [{ name: worker, running: count }]));
    const waiting = own.find(({ worker }) => worker === null)?.count ?? 0;
    return { queue, waiting, running: workers.reduce((sum, { running }) => sum + running, 0), workers };
  });
}

export function jobInfo(row: JobRow): JobInfo {
  const { batchId, customId, position: index, state, attempts, progress, worker, result, error_code: code } = row;
  const detail = row.error_detail === null ? {} : { detail: row.error_detail };
  return {
    ...{ batchId, customId, index, state, attempts, progress },
    ...(worker === null ? {} : { worker }),
    ...(result === null ? {} : { result }),
    ...(code === null ? {} : { error: { code, message: row.error_message ?? '', ...detail } }),
    ...(row.started_at === null ? {} : { startedAtMs: row.started_at }),
    ...(row.ended_at === null ? {} : { endedAtMs: row.ended_at }),
  };
}
