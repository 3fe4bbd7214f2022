/** Files and batches through the OpenAI client, from the upload to the download. */
import { mkdtempSync, rmSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadReranker, type Model } from '@winnow/engine';
import { runWorker, type JobStore } from '@winnow/jobs';
import { createFolderBlobStore, openSqliteJobStore } from '@winnow/jobs/node';
import OpenAI, { toFile } from 'openai';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { batchLineHandler, type BatchOptions, type ServerOptions } from '../src/index.js';
import type { JobOverview } from '../src/schemas/batches.js';
import { demoId, loadDemoModel, startServer, type DemoServer } from './demo-server.js';
import { scripted, speechless } from './fake-models.js';

let model: Model;
beforeAll(async () => {
  model = await loadDemoModel();
});
afterAll(() => model?.dispose());

let folder: string;
let jobs: JobStore;
let demo: DemoServer;
/** Ends all calls of the scripted model. */
let answersSilence: () => void = () => {};

async function start(options: Partial<ServerOptions> = {}, batches: Partial<BatchOptions> = {}): Promise<void> {
  jobs = await openSqliteJobStore(join(folder, 'jobs.db'));
  const { promise, resolve } = Promise.withResolvers<void>();
  answersSilence = resolve;
  const slow = scripted(model, async function* () {
    await promise;
    yield 'late';
  });
  demo = await startServer({
    models: [
      { id: demoId, model },
      { id: 'slow', model: slow },
      { id: 'silent', model: scripted(model, speechless) },
    ],
    batches: { jobs, blobs: createFolderBlobStore(join(folder, 'blobs')), ...batches },
    ...options,
  });
}

async function stop(graceMs = 0): Promise<void> {
  await demo.server.close({ graceMs });
  await jobs.close();
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'winnow-batches-'));
  await start();
});
afterEach(async () => {
  await stop();
  rmSync(folder, { recursive: true });
});

const url = '/v1/chat/completions';
const lineOf = (custom_id: string, fields: object = {}): string => {
  const body = {
    model: demoId,
    messages: [{ role: 'user', content: `Who is ${custom_id}?` }],
    max_tokens: 3,
    ...fields,
  };
  return JSON.stringify({ custom_id, method: 'POST', url, body });
};

async function create(lines: readonly string[], completion_window = '24h', client = demo.client, endpoint = url) {
  const file = await toFile(Buffer.from(lines.join('\n')), 'requests.jsonl');
  const { id } = await client.files.create({ file, purpose: 'batch' });
  const window = completion_window as '24h';
  return client.batches.create({ input_file_id: id, endpoint: endpoint as typeof url, completion_window: window });
}

async function ended(id: string, client = demo.client): Promise<OpenAI.Batch> {
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) return batch;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

interface Line {
  readonly custom_id: string;
  readonly response: {
    readonly status_code: number;
    readonly body: { readonly choices: unknown[]; readonly results?: unknown[] };
  } | null;
  readonly error: { readonly code: string } | null;
}

async function linesOf(fileId: string | undefined, client = demo.client): Promise<Line[]> {
  const text = await (await client.files.content(fileId ?? '')).text();
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);
}

test('from the upload to the download, with an error file', async () => {
  const created = await create([lineOf('alice'), lineOf('bad', { temperature: 9 }), 'not JSON', lineOf('bob')]);
  expect(created).toMatchObject({ object: 'batch', status: 'validating', endpoint: url, completion_window: '24h' });
  expect(created.expires_at).toBe(created.created_at + 24 * 3600);
  const batch = await ended(created.id);
  expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 4, completed: 2, failed: 2 } });
  const output = await linesOf(batch.output_file_id);
  expect(output.map(({ custom_id: id, response }) => [id, response?.status_code])).toEqual([
    ['alice', 200],
    ['bob', 200],
  ]);
  const direct = await demo.client.chat.completions.create({
    ...(JSON.parse(lineOf('alice')) as { body: object }).body,
    temperature: 0,
  } as never);
  expect(Object.keys(output[0]?.response?.body ?? {})).toEqual(Object.keys(direct));
  const errors = await linesOf(batch.error_file_id);
  expect(errors.map(({ custom_id: id, response, error }) => [id, response?.status_code ?? error?.code])).toEqual([
    ['bad', 400],
    [null, 'invalid_json_line'],
  ]);
  const file = await demo.client.files.retrieve(batch.output_file_id ?? '');
  expect(file).toMatchObject({ object: 'file', purpose: 'batch_output', filename: `${batch.id}_output.jsonl` });
  expect(await jobs.batches()).toEqual([]);
});

test('lines that rank documents, also those that name no model', async () => {
  const golden = new URL('../../../packages/engine/test/fixtures/rerank/bert/model.gguf', import.meta.url);
  await using model = await loadReranker(fileURLToPath(golden), { threads: 1 });
  await stop();
  await start({ models: [], rerankers: [{ id: 'cross', model }] });
  const [query, documents] = ['Where is the harbor?', ['Two eggs.', 'The harbor is by the sea.']];
  const rankLine = (custom_id: string, body: object): string =>
    JSON.stringify({ custom_id, method: 'POST', url: '/v1/rerank', body: { query, documents, ...body } });
  const lines = [
    rankLine('named', { model: 'cross' }),
    rankLine('unnamed', { top_n: 1 }),
    rankLine('bad', { top_n: 0 }),
  ];
  const { id, endpoint } = await create(lines, '24h', demo.client, '/v1/rerank');
  expect(endpoint).toBe('/v1/rerank');
  const batch = await ended(id);
  expect(batch.request_counts).toEqual({ total: 3, completed: 2, failed: 1 });
  const ranked = await model.rerank(query, documents);
  const expected = ranked.map(({ index, score }) => ({ index, relevance_score: score }));
  const output = await linesOf(batch.output_file_id);
  expect(output.map(({ custom_id: name, response }) => [name, response?.body.results])).toEqual([
    ['named', expected],
    ['unnamed', expected.slice(0, 1)],
  ]);
  expect((await linesOf(batch.error_file_id)).map(({ custom_id: name }) => name)).toEqual(['bad']);
  await stop();
  await start();
});

test('files are listed in pages, and deleted', async () => {
  const ids: string[] = [];
  for (const name of ['a', 'b', 'c']) {
    ids.push((await demo.client.files.create({ file: await toFile(Buffer.from(name), name), purpose: 'batch' })).id);
  }
  const listed: string[] = [];
  for await (const { id } of demo.client.files.list({ limit: 2, order: 'asc' })) listed.push(id);
  expect(listed.toSorted()).toEqual(ids.toSorted());
  expect((await demo.client.files.retrieve(ids[1] ?? '')).bytes).toBe(1);
  expect(await demo.client.files.delete(ids[1] ?? '')).toEqual({ id: ids[1], object: 'file', deleted: true });
  await expect(demo.client.files.retrieve(ids[1] ?? '')).rejects.toMatchObject({ status: 404 });
  await expect(demo.client.files.content('../../jobs.db')).rejects.toMatchObject({ status: 404 });
});

test('invalid uploads and batches', async () => {
  const file = await toFile(Buffer.from('x'), 'x');
  await expect(demo.client.files.create({ file, purpose: 'assistants' })).rejects.toMatchObject({
    status: 400,
    param: 'purpose',
  });
  expect((await demo.client.files.list()).data).toEqual([]);
  const request = { endpoint: url, completion_window: '24h' } as const;
  const unknown = demo.client.batches.create({ ...request, input_file_id: 'file-1' });
  await expect(unknown).rejects.toMatchObject({ status: 400, param: 'input_file_id' });
  await expect(demo.client.batches.retrieve('batch_1')).rejects.toMatchObject({ status: 404 });
  const foreign = { method: 'POST', headers: { origin: 'https://evil.example' }, body: new FormData() };
  expect((await fetch(`${demo.url}/v1/files`, foreign)).status).toBe(403);
  await stop();
  await start({
    batches: {
      jobs: (jobs = await openSqliteJobStore(join(folder, 'jobs.db'))),
      blobs: createFolderBlobStore(join(folder, 'blobs')),
      maxFileBytes: 100,
    },
  });
  const large = await toFile(Buffer.alloc(101, 'x'), 'large');
  await expect(demo.client.files.create({ file: large, purpose: 'batch' })).rejects.toMatchObject({
    status: 413,
    param: 'file',
  });
  expect((await demo.client.files.list()).data).toEqual([]);
  const failed = await ended((await create(['no', 'request'])).id);
  expect(failed).toMatchObject({ status: 'failed', request_counts: { total: 2, failed: 2 } });
  expect(failed.errors?.data?.map(({ line, code }) => [line, code])).toEqual([
    [1, 'invalid_json_line'],
    [2, 'invalid_json_line'],
  ]);
});

test('a canceled batch has the results so far', async () => {
  const { id } = await create([lineOf('alice'), lineOf('never', { model: 'silent' })]);
  for (;;) {
    const { request_counts: counts } = await demo.client.batches.retrieve(id);
    if (counts?.completed === 1) break;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect((await demo.client.batches.cancel(id)).status).toBe('cancelling');
  const batch = await ended(id);
  expect(batch.status).toBe('cancelled');
  expect((await linesOf(batch.output_file_id)).map(({ custom_id: each }) => each)).toEqual(['alice']);
  await expect(demo.client.batches.cancel(id)).rejects.toMatchObject({ status: 409 });
});

test('what is not done in time expires', async () => {
  await stop();
  await start({
    batches: {
      jobs: (jobs = await openSqliteJobStore(join(folder, 'jobs.db'))),
      blobs: createFolderBlobStore(join(folder, 'blobs')),
      concurrency: 1,
    },
  });
  /** The batch, when nothing of it waits: the first line runs, unless the window ended before it was claimed. */
  const settled = async (seconds: number): Promise<string> => {
    const lines = [lineOf('slow', { model: 'slow' }), lineOf('late'), lineOf('later')];
    const { id } = await create(lines, `${seconds}s`);
    for (;;) {
      const counts = await jobs.counts(id);
      if (counts.running === 1 && counts.expired === 2) return id;
      if (counts.expired === 3) return settled(2 * seconds);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const id = await settled(1);
  answersSilence();
  const batch = await ended(id);
  expect(batch).toMatchObject({ status: 'expired', request_counts: { total: 3, completed: 1, failed: 2 } });
  expect((await linesOf(batch.error_file_id)).map(({ error }) => error?.code)).toEqual([
    'batch_expired',
    'batch_expired',
  ]);
});

test('a batch goes on after a restart in its middle', async () => {
  const ids = Array.from({ length: 12 }, (_, index) => `line-${index}`);
  const { id } = await create(ids.map((each, index) => lineOf(each, index > 6 ? { model: 'slow' } : {})));
  while ((await jobs.counts(id)).completed < 4) await new Promise((resolve) => setTimeout(resolve, 5));
  await stop();
  await start();
  answersSilence();
  const batch = await ended(id);
  expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 12, completed: 12, failed: 0 } });
  expect((await linesOf(batch.output_file_id)).map(({ custom_id: each }) => each)).toEqual(ids);
});

test('in a store that others use, too, a restart removes what is left of its own batches only', async () => {
  const { id } = await create([lineOf('a')]);
  await ended(id);
  const job = { customId: 'a', index: 0, payload: '' };
  await jobs.enqueue(id, [job]); // as if the server had been killed after it wrote the results
  await jobs.enqueue('of others', [job], { queue: 'unknown' });
  await stop();
  await start({}, { queues: [demoId] });
  expect(await jobs.batches()).toEqual(['of others']);
  expect(await jobs.counts('of others')).toMatchObject({ waiting: 1 }); // it answers lines of its queues
});

test('a server without models leaves all lines to workers, who know for whom they are', async () => {
  await stop();
  await start({ models: [], apiKeys: ['one'] }, { concurrency: 0 });
  const client = new OpenAI({ baseURL: `${demo.url}/v1`, apiKey: 'one' });
  const { id } = await create([lineOf('a'), lineOf('b')], '24h', client);
  const owners: unknown[] = [];
  const worker = await startServer({ models: [{ id: demoId, model }] });
  try {
    await runWorker(jobs, {
      name: 'elsewhere',
      concurrency: 1,
      pollMs: 5,
      handler: batchLineHandler((request) => {
        owners.push(request.owner);
        return worker.server.call(request);
      }),
      isDone: async () => (await client.batches.retrieve(id)).status === 'completed',
    });
  } finally {
    await worker.server.close();
  }
  expect(await client.batches.retrieve(id)).toMatchObject({ status: 'completed', request_counts: { completed: 2 } });
  expect(owners).toEqual([expect.stringMatching(/^[\w-]{43}$/), owners[0]]);
});

test('what waits and runs, and where, for operators and autoscalers', async () => {
  await stop();
  await start({ apiKeys: ['one', 'two'] });
  const headers = { authorization: 'Bearer one' };
  const client = new OpenAI({ baseURL: `${demo.url}/v1`, apiKey: 'one' });
  const lines = [lineOf('a'), 'not JSON', lineOf('b', { model: 'slow' }), lineOf('c', { model: 'slow' })];
  const { id } = await create(lines, '24h', client);
  while ((await jobs.counts(id)).completed < 1) await new Promise((resolve) => setTimeout(resolve, 5));
  await jobs.enqueue('of others', [{ customId: 'a', index: 0, payload: '' }], { queue: 'a "queue"' });
  const others = await jobs.claim({ worker: 'elsewhere', leaseMs: 60_000, queues: ['a "queue"'] });
  expect(others).toHaveLength(1);
  const overview = async (key: string): Promise<JobOverview> =>
    (await (await fetch(`${demo.url}/jobs`, { headers: { authorization: `Bearer ${key}` } })).json()) as JobOverview;
  const { queues, batches } = await overview('one');
  expect(queues).toEqual([
    { queue: 'a "queue"', waiting: 0, running: 1, workers: [{ name: 'elsewhere', running: 1 }] },
    { queue: 'slow', waiting: 0, running: 2, workers: [{ name: `${hostname()}-${process.pid}`, running: 2 }] },
  ]);
  expect(batches).toMatchObject([
    {
      ...{ id, status: 'in_progress', endpoint: url, lines: { waiting: 0, running: 2, completed: 1, failed: 1 } },
      failures: [{ line: 2, code: 'invalid_json_line' }],
    },
  ]);
  expect((await overview('two')).batches).toEqual([]); // batches of other keys are not shown
  const metrics = await (await fetch(`${demo.url}/metrics`, { headers })).text();
  expect(metrics).toContain('winnow_batch_store_up 1\n');
  expect(metrics).toContain('winnow_batch_lines_running{queue="slow"} 2\n');
  expect(metrics).toContain('winnow_batch_workers{queue="a \\"queue\\""} 1\n');
  expect(metrics).toContain('vllm:num_requests_running{model_name="slow"} 2\n');
  expect(metrics).toContain(`vllm:num_requests_waiting{model_name="${demoId}"} 0\n`);
  expect(metrics).toMatch(/^winnow_kv_cache_utilization\{model="winnow-tiny"\} 0(\.\d+)?$/m);
  answersSilence();
  await ended(id, client);
  await jobs.close();
  expect(await (await fetch(`${demo.url}/metrics`, { headers })).text()).toContain('winnow_batch_store_up 0\n');
});

test('each API key sees its own files and batches', async () => {
  await stop();
  await start({ apiKeys: ['one', 'two'], requestsPerMinute: 3 });
  const [one, two] = ['one', 'two'].map((apiKey) => new OpenAI({ baseURL: `${demo.url}/v1`, apiKey, maxRetries: 0 }));
  if (one === undefined || two === undefined) throw new Error('expected two clients');
  // the lines count for no rate
  const created = await create(
    ['a', 'b', 'c', 'd', 'e'].map((id) => lineOf(id)),
    '24h',
    one,
  );
  const batch = await ended(created.id, one);
  expect(batch.request_counts).toEqual({ total: 5, completed: 5, failed: 0 });
  for (const call of [
    two.batches.retrieve(batch.id),
    two.files.content(batch.output_file_id ?? ''),
    two.files.delete(batch.input_file_id),
    two.batches.cancel(batch.id),
  ]) {
    await expect(call).rejects.toMatchObject({ status: 404 });
  }
  expect((await two.batches.list()).data).toEqual([]);
  expect((await one.batches.list()).data.map(({ id }) => id)).toEqual([batch.id]);
});
