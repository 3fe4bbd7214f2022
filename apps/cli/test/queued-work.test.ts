/** `winnow embed --queue` and `winnow eval --queue` with workers in this process. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import { redisProgram, repoRoot, startRedisServer } from '@winnow/test-utils';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runCli, TestHost } from './run-cli.js';

const encoder = join(repoRoot, 'packages', 'engine', 'test', 'fixtures', 'arch', 'bert-mean', 'model.gguf');

let folder: string;
let queue: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-queued-'));
  queue = join(folder, 'jobs.db');
});
afterEach(() => rmSync(folder, { recursive: true }));

const textOf = (index: number): string => `Line ${index} of the log tells of ${index * 7} boats and a harbour.`;

test('winnow embed --queue: a text that fails has its error, and files have a number of rows', async () => {
  const input = join(folder, 'texts.txt');
  const long = 'boat '.repeat(60_000); // alone in its part
  writeFileSync(input, [textOf(0), '', long, textOf(3), textOf(4)].join('\n'));
  const output = join(folder, 'vectors');
  const flags = ['--queue', queue, '--jsonl', '-o', output, '--rows-per-file', '2', '--model-id', 'tiny'];
  const ended = runCli(engine, ['embed', '-f', input, ...flags]);
  const host = new TestHost(engine);
  const models = ['--embedding-model', encoder, '--embedding-model-id', 'tiny'];
  const worker = host.run(['worker', ...models, '--queue', queue, '-t', '1']);
  expect(await ended).toMatchObject({ code: 0, stderr: expect.stringContaining('4 of 5 texts embedded') });
  host.terminate();
  expect((await worker).code).toBe(0);
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
