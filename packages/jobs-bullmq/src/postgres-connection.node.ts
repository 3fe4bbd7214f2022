/** Connections to PostgreSQL with the functions of the store. They wait for a server that is being restarted. */
import { setTimeout as sleep } from 'node:timers/promises';
import { ArgumentError, FormatError, IoError, ReleasedError } from '@winnow/tensor';
import pg from 'pg';
import { definitionsOf } from './postgres/functions.js';
import type { Reply, Scripts } from './script-job-store.node.js';
import type { ScriptName } from './scripts/index.js';
import { sourceOf } from './source.js';

/** The comment that marks a schema as a job store. */
const mark = 'job store of Winnow, version 3';
/** Calls run one at a time, by the lock of the schema; each connection plans their statements for itself. */
const maxConnections = 2;
const retryMs = 100;

export class FunctionConnection implements Scripts {
  readonly #source: string;
  readonly #schema: string;
  readonly #pool: pg.Pool;
  readonly #maxWaitMs: number;
  #isOpen = true;

  private constructor(url: string, schema: string, maxWaitMs: number) {
    this.#source = sourceOf(url);
    this.#schema = schema;
    this.#maxWaitMs = maxWaitMs;
    const times = { connectionTimeoutMillis: maxWaitMs, query_timeout: maxWaitMs };
    this.#pool = new pg.Pool({ connectionString: url, max: maxConnections, ...times });
    // errors of idle connections, which the pool replaces
    this.#pool.on('error', () => {});
  }

  /** Creates the schema if it is missing. @throws {IoError} @throws {FormatError} for a schema that is not a job store */
  static async open(url: string, schema: string, maxWaitMs: number): Promise<FunctionConnection> {
    const connection = new FunctionConnection(url, schema, maxWaitMs);
    try {
      await connection.#withinTime(() => connection.#prepare());
      return connection;
    } catch (error) {
      await connection.close();
      throw error;
    }
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  check(name: ScriptName, values: readonly (string | number)[]): void {
    if (!values.some((value) => typeof value === 'string' && value.includes('\0'))) return;
    throw new ArgumentError({
      argument: name,
      expected: 'texts without U+0000, as PostgreSQL has',
      actual: 'one with it',
    });
  }

  async run(name: ScriptName, ...values: readonly (string | number)[]): Promise<Reply> {
    if (!this.#isOpen) throw new ReleasedError(this.#source);
    this.check(name, values);
    const args = values.map(String);
    const text = `SELECT "${this.#schema}".${name}($1::text[]) AS reply`;
    const { rows } = await this.#withinTime(() => this.#pool.query<{ reply: Reply }>(text, [args]));
    return (rows[0] as { reply: Reply }).reply;
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#pool.end();
  }

  async #prepare(): Promise<void> {
    const client = await this.#pool.connect();
    const found = `SELECT obj_description(oid) AS mark FROM pg_namespace WHERE nspname = '${this.#schema}'`;
    try {
      await client.query('BEGIN');
      await client.query(`SELECT pg_advisory_xact_lock(hashtextextended('winnow ${this.#schema}', 0))`);
      const { rows } = await client.query<{ mark: string | null }>(found);
      if (rows.length === 0) {
        const create = `CREATE SCHEMA "${this.#schema}"; SET LOCAL search_path = "${this.#schema}"`;
        const comment = `COMMENT ON SCHEMA "${this.#schema}" IS '${mark}'`;
        await client.query(`${create}; ${definitionsOf(this.#schema)} ${comment}`);
      } else if (rows[0]?.mark !== mark) {
        const message = `expected a schema with the comment '${mark}', got '${rows[0]?.mark ?? ''}'`;
        throw new FormatError({ source: this.#source, field: this.#schema, message });
      }
      await client.query('COMMIT');
      client.release();
    } catch (error) {
      client.release(true); // with the transaction
      throw error;
    }
  }

  /**
   * Waits for a server that is being restarted, and repeats calls that were not answered. Repeating a call that was executed changes
   * nothing, although its holder may get `lost` for a job that it has just ended.
   */
  async #withinTime<T>(work: () => Promise<T>): Promise<T> {
    const endMs = performance.now() + this.#maxWaitMs;
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof Error) || FormatError.isInstance(error)) throw error;
        if (!isTransient(error)) throw this.#errorOf(error.message, error);
        if (performance.now() > endMs || !this.#isOpen) {
          throw this.#errorOf(`no answer within ${this.#maxWaitMs} ms`, error);
        }
        await sleep(retryMs);
      }
    }
  }

  #errorOf(message: string, cause: Error): IoError {
    return new IoError({ source: this.#source, message: `PostgreSQL: ${message}` }, { cause });
  }
}

/** SQLSTATE classes and codes of servers that start, stop or report a conflict, and of lost connections. */
const transientCodes = /^(08...|57P0[123]|40001|40P01|ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT)$/;

function isTransient(error: Error): boolean {
  const { code } = error as { code?: unknown };
  if (typeof code === 'string') return transientCodes.test(code);
  return /Connection terminated|timeout/i.test(error.message);
}
