/**
 * Resident memory of workers on a queue in Redis, and of a router with its servers under streaming clients, over minutes. Needs the
 * built command and redis-server. node apps/cli/scripts/measure/memory.ts [MINUTES OF EACH] [FIRST MINUTES LEFT OUT] [workers|router]
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openRedisJobStore } from '@winnow/jobs-bullmq';
import { startRedisServer } from '@winnow/test-utils';
import { lineOf, mean, numProcesses, program } from './queue-runs.ts';

const [minutes = 3, warmupMinutes = 1] = process.argv.slice(2, 4).map(Number);
const only = process.argv[4];
const sampleMs = 2000;
const say = (text: string): boolean => process.stdout.write(`${text}\n`);

interface Named {
  readonly name: string;
  readonly pid: number;
}

/** In MB, 0 after its end. */
function residentMB({ pid }: Named): number {
  try {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1024;
  } catch {
    return 0;
  }
}

/** Samples until the time is over or `isEnded`, and prints means of the thirds after the warm-up. */
async function watch(processes: readonly Named[], isEnded: () => boolean): Promise<void> {
  const samples = processes.map((): number[] => []);
  const beginMs = performance.now();
  const elapsed = (): number => (performance.now() - beginMs) / 60_000;
  while (elapsed() < minutes && !isEnded()) {
    await sleep(sampleMs);
    if (elapsed() >= warmupMinutes) for (const [i, each] of processes.entries()) samples[i]?.push(residentMB(each));
  }
  say(`| resident memory, MB, of ${elapsed().toFixed(1)} minutes | first third | second | last | maximum |`);
  for (const [i, { name }] of processes.entries()) {
    const all = samples[i] as number[];
    const third = (part: number): number[] =>
      all.slice(Math.floor((part * all.length) / 3), Math.floor(((part + 1) * all.length) / 3));
    const figures = [...[0, 1, 2].map((part) => mean(third(part))), Math.max(...all)];
    say(`| ${name} | ${figures.map((value) => value.toFixed(0)).join(' | ')} |`);
  }
}

function start(...argv: readonly string[]) {
  const child = spawn(process.execPath, [program, ...argv, '-q'], { stdio: ['ignore', 'pipe', 'inherit'] });
  let stdout = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  const address = async (): Promise<string> => {
    while (!stdout.includes('\n')) await once(child.stdout, 'data');
    return stdout.replace('listening on ', '').trim();
  };
  const end = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  };
  return { child, address, end, pid: child.pid ?? 0 };
}

/** Prompts of 10 to 200 tokens that hardly share anything. */
const promptOf = (index: number): string =>
  `${index} ${'The sea was calm, and visitors came. '.repeat(1 + (index % 20))}`;

async function workers(folder: string): Promise<void> {
  const server = await startRedisServer();
  const input = join(folder, 'in.jsonl');
  // more than they answer
  const lines = Array.from({ length: 6000 * minutes }, (_, index) => {
    return lineOf(index, '/v1/completions', { prompt: promptOf(index), temperature: 0, max_tokens: 8 });
  });
  writeFileSync(input, lines.join(''));
  const queue = ['--queue', server.url];
  const running = Array.from({ length: numProcesses }, () =>
    start('worker', ...queue, '-t', '1', '--max-sessions', '8'),
  );
  const batch = start('batch', input, ...queue, '-o', join(folder, 'out.jsonl'));
  try {
    const named = running.map(({ pid }, index) => ({ name: `worker ${index + 1}`, pid }));
    await watch([...named, { name: 'winnow batch', pid: batch.pid }], () => batch.child.exitCode !== null);
    const store = await openRedisJobStore(server.url);
    const [batchId = ''] = await store.batches();
    say(`${(await store.counts(batchId)).completed} lines of three workers`);
    await store.close();
  } finally {
    await Promise.all([...running, batch].map(({ end }) => end()));
    await server.stop();
  }
}

async function router(): Promise<void> {
  const replicas = [1, 2].map(() => start('serve', '--port', '0', '-t', '1', '--no-page', '--max-sessions', '8'));
  const upstreams: string[] = [];
  for (const each of replicas) upstreams.push('--upstream', await each.address());
  const front = start('route', '--port', '0', ...upstreams);
  const url = await front.address();
  let isOver = false;
  let numAnswers = 0;
  const client = async (number: number): Promise<void> => {
    for (let index = number; !isOver; index += 24) {
      const body = JSON.stringify({ prompt: promptOf(index), max_tokens: 16, stream: true, seed: index });
      const headers = { 'content-type': 'application/json' };
      const response = await fetch(`${url}/v1/completions`, { method: 'POST', headers, body });
      const text = await response.text();
      if (!text.trimEnd().endsWith('[DONE]')) throw new Error(`expected a whole stream, got ${text.slice(-200)}`);
      numAnswers++;
    }
  };
  try {
    const clients = Array.from({ length: 24 }, (_, number) => client(number));
    const named = replicas.map(({ pid }, index) => ({ name: `server ${index + 1}`, pid }));
    await watch([{ name: 'router', pid: front.pid }, ...named], () => false);
    isOver = true;
    await Promise.all(clients);
    say(`${numAnswers} streams of 24 clients through the router`);
  } finally {
    await Promise.all([...replicas, front].map(({ end }) => end()));
  }
}

const folder = mkdtempSync(join(tmpdir(), 'winnow-memory-'));
try {
  if (only !== 'router') await workers(folder);
  if (only !== 'workers') await router();
} finally {
  rmSync(folder, { recursive: true, force: true });
}
