/** A PostgreSQL server for a test: processes on a loopback port, in a temporary folder. */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { accepts, findProgram, freePort } from './programs.js';

/** Debian has a separate folder for the programs of each version. */
const debianFolder = '/usr/lib/postgresql';

function debianFolders(): string[] {
  try {
    return readdirSync(debianFolder).map((version) => join(debianFolder, version, 'bin'));
  } catch {
    return [];
  }
}

/** Path of `postgres`, next to `initdb`; undefined if it is missing, and on Windows. */
export const postgresProgram: string | undefined =
  process.platform === 'win32' ? undefined : findProgram('postgres', debianFolders());

/** The server refuses to run as root; then it runs as `nobody`. */
const nobody = { uid: 65_534, gid: 65_534 };

export interface PostgresServer {
  readonly url: string;
  /** Ends the processes without a checkpoint, as a crash would, and resolves when they have ended. */
  kill(): Promise<void>;
  /** Starts it again, with what it had stored. */
  start(): Promise<void>;
  /** Ends it and removes its folder. */
  stop(): Promise<void>;
}

export async function startPostgresServer(): Promise<PostgresServer> {
  if (postgresProgram === undefined) throw new Error('postgres is missing');
  const program = postgresProgram;
  const folder = mkdtempSync(join(tmpdir(), 'winnow-postgres-'));
  const isRoot = process.getuid?.() === 0;
  if (isRoot) chownSync(folder, nobody.uid, nobody.gid);
  const user = { cwd: folder, env: { LC_ALL: 'C' }, ...(isRoot ? nobody : {}) };
  const data = join(folder, 'data');
  const settings = ['-D', data, '-U', 'winnow', '-A', 'trust', '-E', 'UTF8', '--no-locale', '--no-sync'];
  await promisify(execFile)(join(dirname(program), 'initdb'), settings, user);
  const port = await freePort();
  let child: ChildProcess | undefined;
  const start = async (): Promise<void> => {
    const place = ['-D', data, '-h', '127.0.0.1', '-p', String(port), '-k', '', '-F'];
    child = spawn(program, place, { ...user, stdio: 'ignore' });
    while (!(await accepts(port))) {
      if (child.exitCode !== null) throw new Error(`postgres ended with code ${child.exitCode}`);
      await sleep(20);
    }
  };
  const kill = async (): Promise<void> => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    child.kill('SIGQUIT');
    await exit;
  };
  const stop = async (): Promise<void> => {
    await kill();
    rmSync(folder, { recursive: true, force: true });
  };
  await start();
  return { url: `postgres://winnow@127.0.0.1:${port}/postgres`, start, kill, stop };
}
