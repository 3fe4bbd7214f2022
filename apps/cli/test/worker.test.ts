/** `winnow worker` with the demo model, with `winnow batch --queue` and with `winnow serve --queue`; in processes where it is killed. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as engine from '@winnow/engine';
import type { JobStore } from '@winnow/jobs';
import { openSqliteJobStore } from '@winnow/jobs/node';
import { openRedisJobStore } from '@winnow/jobs-bullmq';
import * as server from '@winnow/server';
import { redisProgram, startRedisServer, testCoverage } from '@winnow/test-utils';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { lapseLeases } from './lapse-leases.js';
import { runCli, TestHost } from './run-cli.js';

const program = fileURLToPath(new URL('../dist/main.js', import.meta.url));

let folder: string;
let queue: string;
let workerArguments: readonly string[];
let processes: ChildProcess[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-worker-'));
  queue = join(folder, 'jobs.db');
  workerArguments = ['worker', '--queue', queue, '-t', '1', '--max-sessions', '4'];
});
afterEach(async () => {
  for (const child of processes) if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
  for (const child of processes) if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  processes = [];
  rmSync(folder, { recursive: true });
});

const lineOf = (custom_id: string, max_tokens = 12, fields: object = {}): string => {
  const body = {
    messages: [{ role: 'user', content: `Question of ${custom_id}` }],
    temperature: 0,
    max_tokens,
    ...fields,
  };
  return `${JSON.stringify({ custom_id, method: 'POST', url: '/v1/chat/completions', body })}\n`;
};
const idsOf = (count: number): string[] => Array.from({ length: count }, (_, index) => `line-${index}`);

interface Started {
  readonly child: ChildProcess;
  /** Code or signal. */
  readonly exit: Promise<number | string | null>;
}

function startWorker(): Started {
  const child = spawn(process.execPath, [program, ...workerArguments, '-q'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  processes.push(child);
  return { child, exit: once(child, 'close').then(([code, signal]) => (code ?? signal) as number | string | null) };
}

async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await sleep(10);
}

async function withStore<T>(use: (store: JobStore) => Promise<T>): Promise<T> {
  const store = await openSqliteJobStore(queue);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

const enqueue = (batchId: string, lines: readonly string[]): Promise<unknown> =>
  withStore((store) =>
    server.enqueueBatchLines(store, batchId, [new TextEncoder().encode(lines.join(''))], { maxAttempts: 10 }),
  );

const counts = (batchId: string) => withStore((store) => store.counts(batchId));

interface Result {
  readonly custom_id: string;
  readonly response: { readonly body: { readonly model: string; readonly choices: unknown } };
}

const results = (path: string): Result[] =>
  readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Result);

test.skipIf(process.platform === 'win32')(
  'workers that are killed and replaced answer each line of a batch once',
  async () => {
    const [numLines, killsAt] = testCoverage === 'full' ? [60, [15, 35]] : [24, [6]];
    const ids = idsOf(numLines);
    const input = join(folder, 'in.jsonl');
    writeFileSync(input, ids.map((id) => lineOf(id)).join(''));
    const batch = runCli(engine, ['batch', input, '--queue', queue]);
    const output = join(folder, 'in.output.jsonl');
    let isAnswered = false;
    void batch.finally(() => (isAnswered = true));
    const workers = [startWorker()];
    const numDone = (): Promise<number> =>
      withStore(async (store) => {
        const [batchId = ''] = await store.batches();
        return (await store.counts(batchId)).completed;
      });
    await until(() => existsSync(queue));
    for (const [index, count] of killsAt.entries()) {
      await until(async () => isAnswered || (await numDone()) >= count);
      const victim = workers.shift() as Started;
      victim.child.kill('SIGKILL');
      expect(await victim.exit).toBe('SIGKILL');
      lapseLeases(queue, victim.child.pid);
      if (index + 1 < killsAt.length) workers.push(startWorker());
    }
    const last = new TestHost(engine);
    const ended = last.run(workerArguments);
    const message = `${numLines} of ${numLines} lines answered`;
    expect(await batch).toMatchObject({ code: 0, stderr: expect.stringContaining(message) });
    expect(results(output).map(({ custom_id: id }) => id)).toEqual(ids);
    expect(existsSync(join(folder, 'in.output.errors.jsonl'))).toBe(false);
    // answers are those of the command without a queue
    const alone = join(folder, 'alone.jsonl');
    expect((await runCli(engine, ['batch', input, '-t', '1', '-o', alone])).code).toBe(0);
    const answers = (path: string): unknown[] => results(path).map(({ response }) => response.body.choices);
    expect(answers(output)).toEqual(answers(alone));
    last.terminate();
    expect((await ended).code).toBe(0);
    expect(await withStore((store) => store.batches())).toEqual([]);
  },
);

test('SIGTERM lets running lines finish, and a second one gives them back', async () => {
  await enqueue(
    'batch',
    idsOf(12).map((id) => lineOf(id, 120)),
  );
  const [draining, stopping] = [new TestHost(engine), new TestHost(engine)];
  const drained = draining.run(workerArguments);
  await until(async () => (await counts('batch')).running === 4);
  draining.terminate();
  expect(await drained).toMatchObject({ code: 0, stderr: expect.stringContaining('draining: running lines finish') });
  expect(await counts('batch')).toMatchObject({ completed: 4, running: 0, waiting: 8 });
  const stopped = stopping.run(workerArguments);
  await until(async () => (await counts('batch')).running === 4);
  stopping.terminate();
  stopping.terminate();
  expect((await stopped).code).toBe(130);
  const left = await withStore((store) => store.list('batch', { states: ['waiting'] }));
  expect(left.length).toBeGreaterThan(0);
  expect(left.every(({ attempts }) => attempts === 0)).toBe(true); // an attempt that was given back does not count
  expect((await counts('batch')).running).toBe(0);
});

test('ends with an error when the queue breaks', async () => {
  await enqueue(
    'batch',
    idsOf(4).map((id) => lineOf(id)),
  );
  const worker = runCli(engine, workerArguments);
  await until(async () => (await counts('batch')).completed === 4);
  const database = new DatabaseSync(queue);
  database.exec('DROP TABLE jobs');
  database.close();
  expect(await worker).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/winnow: .*jobs\.db: SQLite: no such table: \w*\.?jobs\n$/),
  });
});

test('a server without a model has its batches answered by workers', async () => {
  const argv = ['--batch-dir', join(folder, 'batches'), '--queue', queue, '--batch-sessions', '0'];
  const [host, worker] = [new TestHost(engine, { server }), new TestHost(engine)];
  const served = host.run(['serve', '--port', '0', ...argv, '-q']);
  await host.untilShown('listening on ', '\n');
  const url = host.shown.trim().replace('listening on ', '');
  const json = async (path: string, body?: FormData | object): Promise<Record<string, unknown>> => {
    const headers = { 'content-type': 'application/json' };
    const form = { method: 'POST', body: body as FormData };
    const init = body instanceof FormData ? form : { method: 'POST', headers, body: JSON.stringify(body) };
    const response = await fetch(`${url}${path}`, body === undefined ? {} : init);
    expect(response.status).toBe(200);
    return (await response.json()) as Record<string, unknown>;
  };
  const ids = idsOf(6);
  const form = new FormData();
  form.set('file', new Blob(ids.map((id) => lineOf(id, 4, { model: 'small' }))), 'requests.jsonl');
  form.set('purpose', 'batch');
  const { id: input_file_id } = await json('/v1/files', form);
  const request = { input_file_id, endpoint: '/v1/chat/completions', completion_window: '24h' };
  const { id } = await json('/v1/batches', request);
  const worked = worker.run([...workerArguments, '--model-id', 'small']);
  let batch = await json(`/v1/batches/${String(id)}`);
  while (batch['status'] !== 'completed') {
    await sleep(50);
    batch = await json(`/v1/batches/${String(id)}`);
  }
  expect(batch['request_counts']).toEqual({ total: 6, completed: 6, failed: 0 });
  const path = join(folder, 'output.jsonl');
  const content = await fetch(`${url}/v1/files/${String(batch['output_file_id'])}/content`);
  writeFileSync(path, await content.text());
  expect(results(path).map(({ custom_id, response }) => [custom_id, response.body.model])).toEqual(
    ids.map((each) => [each, 'small']),
  );
  worker.terminate();
  host.terminate();
  expect([(await worked).code, (await served).code]).toEqual([0, 0]);
});

test('a worker with several models answers their lines, and leaves those of others', async () => {
  const vectorLine = (custom_id: string, model: object): string =>
    `${JSON.stringify({ custom_id, method: 'POST', url: '/v1/embeddings', body: { input: 'A storm', ...model } })}\n`;
  await enqueue('batch', [
    lineOf('a', 4, { model: 'one' }),
    lineOf('b', 4, { model: 'unknown' }),
    vectorLine('c', { model: 'vectors' }),
    vectorLine('d', {}),
    lineOf('e', 4),
  ]);
  const { demoModelUrl } = await import('@winnow/demo-model');
  const demo = dirname(fileURLToPath(demoModelUrl));
  const models = [demo, '--model-id', 'one', '--embedding-model', demo, '--embedding-model-id', 'vectors'];
  const flags = ['--pooling', 'mean', '--memory', '1GB', '--until-empty', '--json', '--report-every', '0.01'];
  const { code, stdout, stderr } = await runCli(engine, ['worker', ...models, ...flags, '-t', '1', '--queue', queue]);
  expect([code, stderr]).toEqual([
    0,
    expect.stringMatching(/answering lines of one, default, vectors, default-embeddings in .*, \d+ at once\n/),
  ]);
  const events = stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(events[0]).toMatchObject({ event: 'start', queues: ['one', 'default', 'vectors', 'default-embeddings'] });
  expect(events.at(-1)).toMatchObject({ event: 'end', answered: 4, failed: 0, generatedTokens: 8 });
  const states = await withStore((store) => store.list('batch'));
  const [, unknown] = states;
  expect(states.map(({ state }) => state)).toEqual(['completed', 'waiting', 'completed', 'completed', 'completed']);
  expect(unknown?.attempts).toBe(0);
});

test.each([
  [8_400_000, 3],
  [12_000_000, 9],
])('with --memory of %i bytes a worker answers %i lines at once', async (memory, numLines) => {
  const flags = ['--memory', String(memory), '-c', '128', '-t', '1', '--until-empty', '--json', '-q'];
  const { code, stdout } = await runCli(engine, ['worker', '--queue', queue, ...flags]);
  const [begin = ''] = stdout.split('\n');
  expect([code, JSON.parse(begin)]).toEqual([0, expect.objectContaining({ event: 'start', maxLines: numLines })]);
  // what the engine plans for that many contexts fits, and for one more does not
  const { demoModelUrl } = await import('@winnow/demo-model');
  const bytesOf = async (maxSessions: number): Promise<number> => {
    const options = { maxSessions, context: 128, kvCache: { capacity: 128 * maxSessions } };
    return (await engine.inspectModel(demoModelUrl, options)).plan.totalBytes;
  };
  expect(await bytesOf(numLines)).toBeLessThanOrEqual(memory);
  expect(await bytesOf(numLines + 1)).toBeGreaterThan(memory);
});

test.skipIf(redisProgram === undefined)('a queue in Redis', async () => {
  const server = await startRedisServer();
  try {
    const input = join(folder, 'in.jsonl');
    writeFileSync(input, lineOf('a', 4) + lineOf('b', 4));
    const ended = runCli(engine, ['batch', input, '--queue', server.url]);
    const store = await openRedisJobStore(server.url);
    await until(async () => (await store.queues()).length === 1);
    const worked = await runCli(engine, ['worker', '--queue', server.url, '--until-empty', '-t', '1']);
    expect([worked.code, (await ended).code]).toEqual([0, 0]);
    expect(results(join(folder, 'in.output.jsonl')).map(({ custom_id: id }) => id)).toEqual(['a', 'b']);
    expect(await store.batches()).toEqual([]);
    await store.close();
  } finally {
    await server.stop();
  }
});

test('a batch in a queue goes on after Ctrl-C, and can be canceled', async () => {
  const input = join(folder, 'in.jsonl');
  writeFileSync(input, lineOf('a', 4) + lineOf('b', 4, { model: 'unknown' }));
  const host = new TestHost(engine);
  const ended = host.run(['batch', input, '--queue', queue]);
  await until(() => existsSync(queue));
  await until(async () => withStore(async (store) => (await store.batches()).length === 1));
  host.interrupt();
  const first = await ended;
  expect([first.code, first.stderr]).toEqual([130, expect.stringContaining('workers go on')]);
  const env = { WINNOW_QUEUE: queue };
  const worked = await runCli(engine, ['worker', '--until-empty', '-t', '1', '--max-sessions', '1'], { env });
  expect([worked.code, worked.stderr]).toEqual([0, expect.stringMatching(/1 in [\d.]+ s: [\d.]+ lines\/s/)]);
  const canceled = await runCli(engine, ['batch', input, '--cancel'], { env });
  expect(canceled).toMatchObject({ code: 0, stderr: expect.stringContaining('1 lines canceled') });
  expect(existsSync(join(folder, 'in.output.jsonl'))).toBe(false);
});

test.each([
  [['worker'], /--queue: expected the URL of a queue, here or in WINNOW_QUEUE, got none/],
  [['worker', '--queue', 'http://example'], /--queue: expected a path, sqlite:PATH, .*, got 'http:\/\/example'/],
  [['worker', '--queue', 'q.db', '--model-id', 'a', '--model-id', 'b'], /--model-id: expected at most 1/],
  [['batch', 'in', '--queue', 'q.db', '-m', 'a.gguf'], /--model: cannot be combined with --queue/],
  [['batch', 'in', '--cancel'], /--cancel: requires --queue/],
  [['batch', 's3://bucket', '--queue', 'q.db'], /: expected s3:\/\/BUCKET\/KEY, got 's3:\/\/bucket'/],
  [['run', 's3://bucket', '-p', 'a'], /MODEL: expected s3:\/\/BUCKET\/KEY, got 's3:\/\/bucket'/],
  [['batch', 'https://user:secret@host', '--queue', 'q.db'], /: expected https:\/\/HOST\/PATH, got 'https:\/\/host'/],
  [['serve', '--queue', 'q.db'], /--queue: requires --batch-dir/],
  [['serve', '--batch-sessions', '0'], /--batch-sessions: requires --batch-dir/],
] as const)('rejects %j', async (argv, message) => {
  const { code, stderr } = await runCli(engine, argv);
  expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
});
