/** What the scripts that measure commands have in common: the built command, and queues of servers that they start. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { postgresProgram, redisProgram, startPostgresServer, startRedisServer } from '@winnow/test-utils';

/** The built command. */
export const program: string = fileURLToPath(new URL('../../dist/main.js', import.meta.url));
export const numProcesses = 3;

/** Runs a command to its end. @throws {Error} when it fails */
export async function winnow(...argv: readonly string[]): Promise<void> {
  const child = spawn(process.execPath, [program, ...argv, '-q'], { stdio: ['ignore', 'ignore', 'inherit'] });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`winnow ${argv.join(' ')} ended with ${code}`);
}

/** Starts workers of one thread each. */
export function startWorkers(queue: string, ...argv: readonly string[]): ChildProcess[] {
  const all = [program, 'worker', '--queue', queue, '-t', '1', ...argv, '-q'];
  return Array.from({ length: numProcesses }, () =>
    spawn(process.execPath, all, { stdio: ['ignore', 'pipe', 'inherit'] }),
  );
}

/** CPU seconds of a process, and of its children that have ended; 0 where there is no `/proc`. */
export function cpuSecondsOf(pid: number): { readonly own: number; readonly children: number } {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ').map(Number) ?? [];
    const [user = 0, system = 0, ofChildren = 0, systemOfChildren = 0] = fields.slice(11, 15);
    return { own: (user + system) / 100, children: (ofChildren + systemOfChildren) / 100 };
  } catch {
    return { own: 0, children: 0 };
  }
}

export interface Queue {
  readonly name: string;
  /** Process of the server, of which the CPU time is known. */
  readonly pid?: number;
  /** Of a round. */
  url(round: number): string;
  stop(): Promise<void>;
}

/**
 * @param only `sqlite`, `redis` or `postgres`. Default: those whose programs are here
 * @throws {Error} when there is none
 */
export async function openQueues(folder: string, only: string | undefined): Promise<Queue[]> {
  const wants = (name: string): boolean => only === undefined || only === name;
  const queues: Queue[] = [];
  if (wants('sqlite')) {
    queues.push({ name: 'SQLite', url: (round) => join(folder, `queue-${round}.db`), stop: async () => {} });
  }
  if (wants('redis') && redisProgram !== undefined) {
    const server = await startRedisServer();
    queues.push({ name: 'Redis', pid: server.pid, url: () => server.url, stop: () => server.stop() });
  }
  if (wants('postgres') && postgresProgram !== undefined) {
    const server = await startPostgresServer();
    queues.push({ name: 'PostgreSQL', url: () => server.url, stop: () => server.stop() });
  }
  if (queues.length === 0) throw new Error(`expected sqlite, redis or postgres, which is installed, got ${only}`);
  return queues;
}

/** A line of the format of OpenAI's batches. */
export function lineOf(index: number, url: string, body: object): string {
  return `${JSON.stringify({ custom_id: `line-${index}`, method: 'POST', url, body })}\n`;
}

export function mean(values: readonly number[] = []): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
