/**
 * Three workers on a queue, compared with one process that does the same lines, and with three processes that share nothing and
 * have a third of the lines each: what the cores give. Needs the built command. node apps/cli/scripts/measure-workers.ts [LINES] [ROUNDS]
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { redisProgram, startRedisServer } from '@winnow/test-utils';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));
const numProcesses = 3;
const [numLines = 1200, numRounds = 2] = process.argv.slice(2).map(Number);
const folder = mkdtempSync(join(tmpdir(), 'winnow-measure-'));
/** As many lines at once in each process. */
const sessions = ['--max-sessions', '8'];

function lineOf(index: number): string {
  const messages = [{ role: 'user', content: `Visitor ${index} asks for the code of Alice and of Bob.` }];
  const body = { messages, temperature: 0, max_tokens: 12 };
  return `${JSON.stringify({ custom_id: `line-${index}`, method: 'POST', url: '/v1/chat/completions', body })}\n`;
}

const lines = Array.from({ length: numLines }, (_, index) => lineOf(index));

function fileOf(name: string, content: readonly string[]): string {
  const path = join(folder, name);
  writeFileSync(path, content.join(''));
  return path;
}

async function winnow(...argv: readonly string[]): Promise<void> {
  const child = spawn(process.execPath, [program, ...argv, '-q'], { stdio: ['ignore', 'ignore', 'inherit'] });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`winnow ${argv.join(' ')} ended with ${code}`);
}

/** @returns lines per second, with the start of the processes */
async function rateOf(run: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await run();
  return (1000 * numLines) / (performance.now() - startMs);
}

let number = 0;
const outputOf = (): string[] => ['-o', join(folder, `out-${number++}.jsonl`)];

const oneProcess = (input: string, threads: string): Promise<void> =>
  winnow('batch', input, '-t', threads, ...sessions, ...outputOf());

function plainProcesses(): Promise<unknown> {
  const parts = Array.from({ length: numProcesses }, (_, part) =>
    lines.filter((_line, i) => i % numProcesses === part),
  );
  const inputs = parts.map((part, i) => fileOf(`part-${i}.jsonl`, part));
  return Promise.all(inputs.map((input) => oneProcess(input, '1')));
}

async function workers(input: string, queue: string): Promise<void> {
  const batch = winnow('batch', input, '--queue', queue, ...outputOf());
  // those that start before the lines are there must not find the queue empty
  const numWorkers = Array.from({ length: numProcesses });
  const running = numWorkers.map(() =>
    spawn(process.execPath, [program, 'worker', '--queue', queue, '-t', '1', ...sessions, '-q']),
  );
  await batch;
  for (const child of running) child.kill('SIGTERM');
}

const input = fileOf('in.jsonl', lines);
const server = redisProgram === undefined ? undefined : await startRedisServer();
try {
  for (let round = 1; round <= numRounds; round++) {
    const show = async (name: string, run: () => Promise<unknown>): Promise<void> => {
      process.stdout.write(`round ${round}, ${name}: ${(await rateOf(run)).toFixed(2)} lines/s\n`);
    };
    await show('one process, one thread', () => oneProcess(input, '1'));
    await show('one process, two threads', () => oneProcess(input, '2'));
    await show('three processes that share nothing', plainProcesses);
    await show('three workers, a queue in SQLite', () => workers(input, join(folder, `queue-${round}.db`)));
    if (server !== undefined) await show('three workers, a queue in Redis', () => workers(input, server.url));
  }
} finally {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
}
