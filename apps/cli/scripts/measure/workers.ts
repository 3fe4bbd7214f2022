/**
 * Three workers on a queue, compared with one process that does the same lines, and with three processes that share nothing and
 * have a third of the lines each: what the cores give. Needs the built command.
 * node apps/cli/scripts/measure/workers.ts [LINES] [ROUNDS] [sqlite|redis|postgres]
 * With a queue, only its workers and the processes that share nothing are measured, in turns.
 */
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cpuSecondsOf, lineOf, mean, numProcesses, openQueues, startWorkers, winnow } from './queue-runs.ts';

const [numLines = 1200, numRounds = 2] = process.argv.slice(2, 4).map(Number);
const only = process.argv[4];
const folder = mkdtempSync(join(tmpdir(), 'winnow-measure-'));
/** As many lines at once in each process. */
const sessions = ['--max-sessions', '8'];

function chatOf(index: number): string {
  const messages = [{ role: 'user', content: `Visitor ${index} asks for the code of Alice and of Bob.` }];
  return lineOf(index, '/v1/chat/completions', { messages, temperature: 0, max_tokens: 12 });
}

const lines = Array.from({ length: numLines }, (_, index) => chatOf(index));

function fileOf(name: string, content: readonly string[]): string {
  const path = join(folder, name);
  writeFileSync(path, content.join(''));
  return path;
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

/** CPU seconds of the workers of the last run, until its last line. */
let workerSeconds = 0;
/** Workers that end, for which the next run waits. */
const leaving: Promise<unknown>[] = [];

async function workers(input: string, queue: string): Promise<void> {
  const batch = winnow('batch', input, '--queue', queue, ...outputOf());
  // workers that start before the lines are there must not find the queue empty
  const running = startWorkers(queue, ...sessions);
  await batch;
  workerSeconds = running.reduce((sum, { pid = 0 }) => sum + cpuSecondsOf(pid).own, 0);
  for (const child of running) {
    leaving.push(once(child, 'exit'));
    child.kill('SIGTERM');
  }
}

const input = fileOf('in.jsonl', lines);

const rates = new Map<string, number[]>();
async function show(round: number, name: string, run: () => Promise<unknown>, server?: number): Promise<void> {
  const ofServer = (): number => (server === undefined ? 0 : cpuSecondsOf(server).own);
  const cpuSeconds = (): number => cpuSecondsOf(process.pid).children + ofServer();
  const [before, serverBefore] = [cpuSeconds(), ofServer()];
  const rate = await rateOf(run);
  await Promise.all(leaving.splice(0));
  rates.set(name, [...(rates.get(name) ?? []), rate]);
  const seconds = (cpuSeconds() - before).toFixed(2);
  const parts = [workerSeconds > 0 ? `${workerSeconds.toFixed(2)} of them in the workers` : ''];
  if (server !== undefined) parts.push(`${(ofServer() - serverBefore).toFixed(2)} in the server`);
  workerSeconds = 0;
  process.stdout.write(
    `round ${round}, ${name}: ${rate.toFixed(2)} lines/s, ${seconds} CPU seconds ${parts.join(', ')}\n`,
  );
}

const plainName = 'three processes that share nothing';
const queues = await openQueues(folder, only);
try {
  for (let round = 1; round <= numRounds; round++) {
    if (only === undefined) {
      await show(round, 'one process, one thread', () => oneProcess(input, '1'));
      await show(round, 'one process, two threads', () => oneProcess(input, '2'));
    }
    await show(round, plainName, plainProcesses);
    for (const { name, url, pid } of queues) {
      await show(round, `three workers, a queue in ${name}`, () => workers(input, url(round)), pid);
    }
  }
  const given = mean(rates.get(plainName));
  for (const [name, values] of rates) {
    process.stdout.write(
      `${name}: ${mean(values).toFixed(2)} lines/s, ${(mean(values) / given).toFixed(3)} of what the cores give\n`,
    );
  }
} finally {
  for (const queue of queues) await queue.stop();
  rmSync(folder, { recursive: true, force: true });
}
