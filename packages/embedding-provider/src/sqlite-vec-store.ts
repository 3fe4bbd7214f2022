/** A vector store on a `sqlite-vec` table, in a SQLite database that the caller opens and loads the extension into. */
import { ArgumentError, checkOptions } from '@winnow/tensor';
import { checkCount, checkVector } from './checks.js';
import type { VectorStore } from './vector-store.js';

/** The parts of a database in use, which `DatabaseSync` of `node:sqlite` and `better-sqlite3` share. */
export interface SqliteDatabase {
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
}

export interface SqliteStatement {
  run(...parameters: (string | number | Uint8Array)[]): { readonly changes: number | bigint };
  all(...parameters: (string | number | Uint8Array)[]): unknown[];
}

export interface SqliteVecOptions {
  readonly dimensions: number;
  /** Default `texts`. */
  readonly table?: string;
}

/**
 * Creates the table if it does not exist. Search compares with every vector: exact, and fast enough for some hundred
 * thousand vectors.
 * @throws {UnknownOptionError} for an option that does not exist
 * @throws {ArgumentError} for a table of other dimensions, or an invalid name
 */
export function createSqliteVecStore(database: SqliteDatabase, options: SqliteVecOptions): VectorStore {
  checkOptions(options, { dimensions: true, table: true });
  const { dimensions, table = 'texts' } = options;
  checkCount('dimensions', dimensions);
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(table)) {
    throw new ArgumentError({ argument: 'table', expected: 'letters, digits and _', actual: JSON.stringify(table) });
  }
  database.exec(
    `CREATE VIRTUAL TABLE IF NOT EXISTS ${table} USING vec0(` +
      `id TEXT PRIMARY KEY, vector FLOAT[${dimensions}] distance_metric=cosine, +text TEXT)`,
  );
  checkTable(database, table, dimensions);
  const remove = database.prepare(`DELETE FROM ${table} WHERE id = ?`);
  const insert = database.prepare(`INSERT INTO ${table}(id, vector, text) VALUES (?, ?, ?)`);
  const nearest = database.prepare(
    `SELECT id, text, distance FROM ${table} WHERE vector MATCH ? AND k = ? ORDER BY distance`,
  );
  const count = database.prepare(`SELECT count(*) AS total FROM ${table}`);

  return {
    dimensions,
    async insert(records) {
      for (const { vector } of records) checkVector(vector, dimensions);
      database.exec('SAVEPOINT winnow_insert');
      try {
        for (const { id, vector, text } of records) {
          remove.run(id); // virtual tables have no upsert
          insert.run(id, bytesOf(vector), text);
        }
      } catch (error) {
        database.exec('ROLLBACK TO winnow_insert');
        throw error;
      } finally {
        database.exec('RELEASE winnow_insert');
      }
    },
    async search(vector, limit) {
      checkVector(vector, dimensions);
      checkCount('limit', limit);
      const rows = nearest.all(bytesOf(vector), limit) as { id: string; text: string; distance: number }[];
      return rows.map(({ id, text, distance }) => ({ id, text, similarity: 1 - distance }));
    },
    delete: async (id) => Number(remove.run(id).changes) > 0,
    count: async () => (count.all() as { total: number }[])[0]?.total ?? 0,
  };
}

/** The table may already exist; its SQL declares its dimensions. */
function checkTable(database: SqliteDatabase, table: string, dimensions: number): void {
  const rows = database.prepare('SELECT sql FROM sqlite_master WHERE name = ?').all(table) as { sql: string }[];
  const sql = rows[0]?.sql ?? '';
  if (sql.includes(`FLOAT[${dimensions}] distance_metric=cosine`)) return;
  const expected = `a table of ${dimensions} dimensions`;
  throw new ArgumentError({ argument: 'table', expected, actual: /FLOAT\[\d+\]/.exec(sql)?.[0] ?? 'another table' });
}

/** A view, not a copy; sqlite-vec expects native byte order. */
function bytesOf(vector: Float32Array): Uint8Array {
  return new Uint8Array(vector.buffer as ArrayBuffer, vector.byteOffset, vector.byteLength);
}
