/** A Redis server for a test: a process on a loopback port, in a temporary folder. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { accepts, findProgram, freePort } from './programs.js';

/** Path of `redis-server`; undefined where it is missing. */
export const redisProgram: string | undefined = findProgram('redis-server');

export interface RedisServer {
  readonly url: string;
  /** Id of the process that was started last. */
  readonly pid: number;
  /** Ends the process by SIGKILL, and resolves when it has ended. */
  kill(): Promise<void>;
  /** Starts it again, with what it had stored. */
  start(): Promise<void>;
  /** Ends it and removes its folder. */
  stop(): Promise<void>;
}

/** A command that becomes the server, with these settings of the place where it runs. */
export type RedisCommand = (place: readonly string[]) => {
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
};

/**
 * Keeps every command in a file, as production servers of job stores do.
 * @param settings replace those of the file, or the whole command
 */
export async function startRedisServer(
  settings: readonly string[] | RedisCommand = ['--appendonly', 'yes'],
): Promise<RedisServer> {
  if (redisProgram === undefined) throw new Error('redis-server is missing');
  const program = redisProgram;
  const folder = mkdtempSync(join(tmpdir(), 'winnow-redis-'));
  const port = await freePort();
  let child: ChildProcess | undefined;
  const start = async (): Promise<void> => {
    const place = ['--bind', '127.0.0.1', '--port', String(port), '--dir', folder, '--save', ''];
    const { command, environment: env } =
      typeof settings === 'function'
        ? settings(place)
        : { command: [program, ...place, ...settings], environment: process.env };
    child = spawn(command[0] ?? '', command.slice(1), { stdio: 'ignore', env });
    while (!(await accepts(port))) {
      if (child.exitCode !== null) throw new Error(`redis-server ended with code ${child.exitCode}`);
      await sleep(20);
    }
  };
  const kill = async (): Promise<void> => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
  };
  const stop = async (): Promise<void> => {
    await kill();
    rmSync(folder, { recursive: true, force: true });
  };
  await start();
  return {
    url: `redis://127.0.0.1:${port}`,
    get pid() {
      return child?.pid ?? 0;
    },
    ...{ start, kill, stop },
  };
}
