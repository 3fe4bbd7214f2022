/** `winnow embed --queue` and `winnow eval --queue` with real workers: the results of one process, also when workers are killed. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import { openSqliteJobStore } from '@winnow/jobs/node';
import { redisProgram, repoRoot, startRedisServer } from '@winnow/test-utils';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runCli, TestHost } from './run-cli.js';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));
const encoder = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'bert-mean', 'model.gguf');

let folder: string;
let queue: string;
let workers: ChildProcess[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-queued-'));
  queue = join(folder, 'jobs.db');
});
afterEach(async () => {
  for (const child of workers) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  workers = [];
  rmSync(folder, { recursive: true });
});

function startWorker(...flags: readonly string[]): ChildProcess {
  const argv = ['worker', '--queue', queue, '-t', '1', '-q', ...flags];
  const child = spawn(process.execPath, [program, ...argv], { stdio: ['ignore', 'ignore', 'inherit'] });
  workers.push(child);
  return child;
}

/** Resolves when the only batch of the queue has as many results. */
async function untilDone(numJobs: number): Promise<void> {
  while (!existsSync(queue)) await sleep(10);
  const store = await openSqliteJobStore(queue);
  try {
    for (;;) {
      const [batchId] = await store.batches();
      if (batchId !== undefined && (await store.counts(batchId)).completed >= numJobs) return;
      await sleep(10);
    }
  } finally {
    await store.close();
  }
}

const textOf = (index: number): string => `Line ${index} of the log tells of ${index * 7} boats and a harbour.`;

describe.skipIf(process.platform === 'win32')('winnow embed --queue', () => {
  test('has the vectors of one process, also when a worker and the command are killed', async () => {
    const input = join(folder, 'texts.txt');
    const texts = Array.from({ length: 600 }, (_, index) => textOf(index));
    writeFileSync(input, texts.join('\r\n'));
    const output = join(folder, 'vectors.npy');
    const argv = ['embed', '--file', input, '--queue', queue, '--npy', '-o', output];
    const command = spawn(process.execPath, [program, ...argv], { stdio: 'ignore' });
    const victim = startWorker('--embedding-model', encoder);
    await untilDone(2);
    command.kill('SIGKILL');
    victim.kill('SIGKILL');
    await Promise.all([command, victim].map((child) => child.exitCode ?? child.signalCode ?? once(child, 'exit')));
    expect(existsSync(output)).toBe(false);
    startWorker('--embedding-model', encoder);
    const { code, stderr } = await runCli(engine, argv);
    expect([code, stderr]).toEqual([0, `winnow: 600 of 600 texts embedded in ${output}\n`]);
    const alone = join(folder, 'alone.npy');
    expect((await runCli(engine, ['embed', encoder, '--file', input, '--npy', '-o', alone, '-t', '1'])).code).toBe(0);
    expect(readFileSync(output).equals(readFileSync(alone))).toBe(true);
    expect(existsSync(join(folder, 'vectors.npy.errors.jsonl'))).toBe(false);
  });
});

test('winnow embed --queue: a text that fails has its error, and files have a number of rows', async () => {
  const input = join(folder, 'texts.txt');
  const long = Array.from({ length: 200 }, () => 'boat').join(' ');
  writeFileSync(input, [textOf(0), '', long, textOf(3), textOf(4)].join('\n'));
  const output = join(folder, 'vectors');
  const flags = ['--queue', queue, '--jsonl', '-o', output, '--rows-per-file', '2', '--model-id', 'tiny'];
  const ended = runCli(engine, ['embed', '-f', input, ...flags]);
  while (!existsSync(queue)) await sleep(10);
  await sleep(100);
  const worker = ['worker', '--embedding-model', encoder, '--embedding-model-id', 'tiny', '--queue', queue];
  expect(await runCli(engine, [...worker, '--until-empty', '-t', '1'])).toMatchObject({ code: 0 });
  expect(await ended).toMatchObject({ code: 0, stderr: expect.stringContaining('4 of 5 texts embedded') });
  expect(readdirSync(output)).toEqual(['00000.jsonl', '00001.jsonl', '00002.jsonl']);
  const rows = readdirSync(output).flatMap((name) => readFileSync(join(output, name), 'utf8').trimEnd().split('\n'));
  const found = rows.map((row) => JSON.parse(row) as { line: number; text: string; embedding: number[] | null });
  expect(found.map(({ line, embedding }) => [line, embedding?.length])).toEqual([
    ...[
      [1, 64],
      [2, 64],
      [3, undefined],
    ],
    ...[
      [4, 64],
      [5, 64],
    ],
  ]);
  const alone = await runCli(engine, ['embed', encoder, '-p', textOf(4), '--json', '-t', '1']);
  const [embedding] = (JSON.parse(alone.stdout) as { embeddings: number[][] }).embeddings;
  expect(found[4]).toEqual({ line: 5, text: textOf(4), embedding });
  const [error, rest] = readFileSync(`${output}.errors.jsonl`, 'utf8').split('\n');
  expect([JSON.parse(error as string), rest]).toEqual([
    { line: 3, error: { code: 'context_length_exceeded', message: expect.stringContaining('128') } },
    '',
  ]);
});

describe.skipIf(process.platform === 'win32')('winnow eval --queue', () => {
  const argv = [
    ...['eval', '--tokens', '32', '--attention-tokens', '16', '--parts', 'logits,attention,tasks'],
    ...['--policies', 'dense|streaming:window=8|subquadratic:window=8,block=2000', '--kv-dtypes', 'q8_0'],
    ...['--tasks', 'passkey', '--task-lengths', '64', '--cases', '1', '--json', '-q'],
  ];
  test('has the report of one process, also when a worker is killed', async () => {
    const ended = runCli(engine, [...argv, '--queue', queue]);
    const victim = startWorker();
    await untilDone(1);
    victim.kill('SIGKILL');
    startWorker('--until-empty');
    startWorker('--until-empty');
    const { code, stdout, stderr } = await ended;
    expect([code, stderr]).toEqual([0, '']);
    const alone = await runCli(engine, argv);
    expect(JSON.parse(stdout)).toEqual(JSON.parse(alone.stdout));
  });
});

test.skipIf(redisProgram === undefined)('winnow eval --queue and winnow embed --queue in Redis', async () => {
  const server = await startRedisServer();
  try {
    const input = join(folder, 'texts.txt');
    writeFileSync(input, `${textOf(0)}\n`);
    const output = join(folder, 'out.txt');
    const embedded = runCli(engine, ['embed', '-f', input, '--queue', server.url, '-o', output]);
    const parts = ['--parts', 'logits', '--tokens', '8', '--policies', 'dense', '--kv-dtypes', '', '--json'];
    const evaluated = runCli(engine, ['eval', ...parts, '--queue', server.url]);
    const demo = dirname(fileURLToPath(demoModelUrl));
    const host = new TestHost(engine);
    const ended = host.run([
      'worker',
      demo,
      '--model-id',
      'winnow-tiny',
      '--embedding-model',
      encoder,
      '--queue',
      server.url,
      '-t',
      '1',
    ]);
    expect([(await embedded).code, (await evaluated).code]).toEqual([0, 0]);
    host.terminate();
    expect((await ended).code).toBe(0);
    expect(readFileSync(output, 'utf8').split(' ').length).toBe(64);
  } finally {
    await server.stop();
  }
});

test('winnow eval --queue: a worker with other weights fails the parts', async () => {
  const parts = ['--parts', 'logits', '--tokens', '8', '--policies', 'dense', '--kv-dtypes', '', '--json'];
  const ended = runCli(engine, ['eval', ...parts, '--queue', queue, '--model-id', 'other']);
  const other = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'llama', 'model.gguf');
  const host = new TestHost(engine);
  const worker = host.run(['worker', other, '--model-id', 'other', '--queue', queue, '-t', '1']);
  expect(await ended).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/part '0 logits' failed: .* other weights/),
  });
  host.terminate();
  expect((await worker).code).toBe(0);
});

test('lines whose model is the name of a queue for other work fail, once', async () => {
  const input = join(folder, 'lines.jsonl');
  const lineOf = (url: string, body: object, index: number): string =>
    JSON.stringify({ custom_id: String(index), method: 'POST', url, body });
  const lines = [
    lineOf('/v1/embeddings', { model: 'texts:tiny', input: 'a' }, 0),
    lineOf('/v1/completions', { model: 'evaluations:demo', prompt: 'a' }, 1),
  ];
  writeFileSync(input, lines.join('\n'));
  const errors = join(folder, 'errors.jsonl');
  const ended = runCli(engine, ['batch', input, '--queue', queue, '-o', join(folder, 'out.jsonl'), '--errors', errors]);
  const host = new TestHost(engine);
  const models = [dirname(fileURLToPath(demoModelUrl)), '--model-id', 'demo', '--embedding-model', encoder];
  const worker = host.run(['worker', ...models, '--embedding-model-id', 'tiny', '--queue', queue, '-t', '1']);
  await ended;
  host.terminate();
  expect((await worker).code).toBe(0);
  const found = readFileSync(errors, 'utf8').trimEnd().split('\n');
  expect(found.map((line) => JSON.parse(line) as object)).toMatchObject([
    { custom_id: '0', error: { code: 'model_not_found', message: "no model 'texts:tiny'" } },
    { custom_id: '1', error: { code: 'model_not_found', message: "no model 'evaluations:demo'" } },
  ]);
});

test.each([
  [['worker', '--queue', 'redi://user:secret@host/0?password=secret'], /got 'redi:\/\/host\/0'/],
  [['embed', '-p', 'a', '--queue', 'q.db'], /--prompt: cannot be combined with --queue/],
  [['embed', 'a.gguf', '--file', 'x', '--queue', 'q.db'], /model: cannot be combined with --queue/],
  [['embed', '--queue', 'q.db', '-o', 'x'], /--queue: requires --file PATH/],
  [['embed', '--jsonl', '-p', 'a'], /--jsonl: requires --queue/],
  [['eval', '--model-id', 'a'], /--model-id: requires --queue/],
  [['eval', '--sparsity', 'a', '--queue', 'q.db'], /--sparsity: cannot be combined with --queue/],
] as const)('rejects %j', async (argv, message) => {
  const { code, stderr } = await runCli(engine, argv);
  expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
});
