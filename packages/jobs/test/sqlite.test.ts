/** The job store in a SQLite file. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { FormatError, IoError } from '@winnow/tensor';
import { sourceArguments } from '@winnow/test-utils';
import { afterAll, expect, it } from 'vitest';
import { openSqliteJobStore } from '../src/index.node.js';
import { describeJobStore } from '../src/testing.js';

const folder = mkdtempSync(join(tmpdir(), 'winnow-jobs-'));
afterAll(() => rmSync(folder, { recursive: true }));

describeJobStore({
  name: 'SQLite',
  open: (place, now) => openSqliteJobStore(join(folder, `${place}.db`), { now, pollMs: 5 }),
});

it('rejects files that are not job stores', async () => {
  const text = join(folder, 'text.db');
  writeFileSync(text, 'This is not a database, but long enough to be one. '.repeat(20));
  await expect(openSqliteJobStore(text)).rejects.toThrow(FormatError);
  const other = join(folder, 'other.db');
  const database = new DatabaseSync(other);
  database.exec('CREATE TABLE t (a)');
  database.close();
  await expect(openSqliteJobStore(other)).rejects.toThrow(/other\.db: application_id: expected \d+ of a job store/);
  await expect(openSqliteJobStore(join(folder, 'no', 'folder.db'))).rejects.toThrow(IoError);
});

it('names the required version of Node when there is no SQLite', () => {
  const program = `
    const { openSqliteJobStore } = await import(${JSON.stringify(new URL('../src/index.node.ts', import.meta.url).href)});
    await openSqliteJobStore('jobs.db').catch((error) => console.log(error.code, error.message));`;
  const argv = [...sourceArguments, '--no-experimental-sqlite', '--input-type=module', '-e', program];
  const { stdout } = spawnSync(process.execPath, argv, { encoding: 'utf8' });
  expect(stdout).toBe(
    `io jobs.db: a job store in a file needs node:sqlite of Node 22.13 or later, got Node ${process.versions.node}\n`,
  );
});
