/**
 * Three workers on a queue in Redis, one of which is killed every few seconds, while the server of the queue is killed and
 * started again twice: each of 10,000 lines is answered once, and none is lost. Only `pnpm test:full` runs it.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { openRedisJobStore } from '@winnow/jobs-bullmq';
import { redisProgram, startRedisServer, testCoverage, type RedisServer } from '@winnow/test-utils';
import { expect, test } from 'vitest';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));
const numLines = 10_000;
const killMs = 4000;
const isSkipped = testCoverage !== 'full' || redisProgram === undefined || process.platform === 'win32';
const numWorkers = 3;
/** Lines have one of as many prompts. */
const numPrompts = 40;

function lineOf(index: number): string {
  const content = `What is the code of visitor ${index % numPrompts}?`;
  const body = { messages: [{ role: 'user', content }], temperature: 0, max_tokens: 4 };
  return `${JSON.stringify({ custom_id: `line-${index}`, method: 'POST', url: '/v1/chat/completions', body })}\n`;
}

/** Keeps three workers running: another one replaces each that is killed. */
class Workers {
  readonly #running: { readonly child: ChildProcess; readonly exit: Promise<unknown[]> }[] = [];
  readonly #url: string;
  numKilled = 0;

  constructor(url: string) {
    this.#url = url;
    for (let i = 0; i < numWorkers; i++) this.#start();
  }

  #start(): void {
    const argv = ['worker', '--queue', this.#url, '-t', '1', '--max-sessions', '8', '-q'];
    const child = spawn(process.execPath, [program, ...argv], { stdio: ['ignore', 'ignore', 'inherit'] });
    this.#running.push({ child, exit: once(child, 'exit') });
  }

  async killOldest(): Promise<void> {
    const oldest = this.#running.shift();
    oldest?.child.kill('SIGKILL');
    await oldest?.exit;
    this.numKilled++;
    this.#start();
  }

  async end(): Promise<void> {
    for (const { child } of this.#running) child.kill('SIGKILL');
    await Promise.all(this.#running.map(({ exit }) => exit));
  }
}

/** Kills a worker every few seconds, and the server when a third and two thirds of the lines are done, until `isEnded`. */
async function disturb(workers: Workers, server: RedisServer, isEnded: () => boolean): Promise<number> {
  const store = await openRedisJobStore(server.url);
  let numRestarts = 0;
  let killedMs = performance.now();
  while (!isEnded()) {
    await sleep(50);
    const [batchId = ''] = await store.batches();
    const { completed } = await store.counts(batchId);
    if (numRestarts < 2 && completed >= ((numRestarts + 1) * numLines) / 3) {
      await server.kill();
      await sleep(200);
      await server.start();
      numRestarts++;
    }
    if (performance.now() - killedMs < killMs) continue;
    await workers.killOldest();
    killedMs = performance.now();
  }
  await store.close();
  return numRestarts;
}

test.skipIf(isSkipped)(
  'each line is answered once while workers and the server of the queue are killed',
  { timeout: 30 * 60_000 },
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'winnow-killed-'));
    const input = join(folder, 'in.jsonl');
    const indices = Array.from({ length: numLines }, (_, index) => index);
    writeFileSync(input, indices.map(lineOf).join(''));
    const server = await startRedisServer();
    const workers = new Workers(server.url);
    const batch = spawn(process.execPath, [program, 'batch', input, '--queue', server.url], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    try {
      let stderr = '';
      batch.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
      const closed = once(batch, 'close');
      const numRestarts = await disturb(workers, server, () => batch.exitCode !== null);
      const [code] = (await closed) as [number | null];
      expect([code, stderr]).toEqual([0, expect.stringContaining(`${numLines} of ${numLines} lines answered`)]);
      expect(numRestarts).toBe(2);
      expect(workers.numKilled).toBeGreaterThan(0);
      expect(existsSync(join(folder, 'in.output.errors.jsonl'))).toBe(false);
      checkAnswers(readFileSync(join(folder, 'in.output.jsonl'), 'utf8'), indices);
    } finally {
      batch.kill('SIGKILL');
      await workers.end();
      await server.stop();
      rmSync(folder, { recursive: true });
    }
  },
);

/** Each line once, in the order of the input; the same prompt has the same answer, whoever computed it. */
function checkAnswers(text: string, indices: readonly number[]): void {
  const lines = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { custom_id: string; response: { body: { choices: unknown } } });
  expect(lines.map(({ custom_id: id }) => id)).toEqual(indices.map((index) => `line-${index}`));
  const answers = lines.map(({ response }) => JSON.stringify(response.body.choices));
  const ofPrompts = answers.slice(0, numPrompts);
  expect(answers.filter((answer, index) => answer !== ofPrompts[index % numPrompts])).toEqual([]);
}
