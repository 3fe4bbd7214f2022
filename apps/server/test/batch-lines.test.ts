/** Lines of batches, answered by the handlers of the server with the demo model. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { demoModelUrl } from '@winnow/demo-model';
import { loadEmbeddingModel, type EmbeddingModel, type Model } from '@winnow/engine';
import { runWorker, type JobStore } from '@winnow/jobs';
import { openSqliteJobStore } from '@winnow/jobs/node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  batchLineHandler,
  batchResults,
  createServer,
  enqueueBatchLines,
  type EnqueueLinesOptions,
  type ResultKind,
  type WinnowServer,
} from '../src/index.js';
import { aborted, failing, scripted } from './fake-models.js';
import { demoId, loadDemoModel } from './demo-server.js';

const folder = mkdtempSync(join(tmpdir(), 'winnow-lines-'));
let model: Model;
let embedder: EmbeddingModel;
let server: WinnowServer;
let store: JobStore;
beforeAll(async () => {
  model = await loadDemoModel({ kvCache: { whenFull: 'wait', capacity: 8192 } });
  embedder = await loadEmbeddingModel(demoModelUrl, { threads: 1, pooling: 'mean' });
  server = await createServer({
    models: [
      { id: demoId, model },
      { id: 'broken', model: scripted(model, failing(new Error('a defect'))) },
      { id: 'silent', model: scripted(model, ({ signal }) => silence(signal)) },
    ],
    embeddingModels: [{ id: demoId, model: embedder }],
    apiKeys: ['secret'],
    requestsPerMinute: 1,
  });
  store = await openSqliteJobStore(join(folder, 'jobs.db'));
});
afterAll(async () => {
  await store?.close();
  await server?.close({ graceMs: 0 });
  await model?.dispose();
  await embedder?.dispose();
  rmSync(folder, { recursive: true });
});

async function* silence(signal: AbortSignal | undefined): AsyncGenerator<string, void, void> {
  yield 'well';
  await aborted(signal);
}

const lineOf = (custom_id: string, body: object, url = '/v1/chat/completions'): string =>
  JSON.stringify({ custom_id, method: 'POST', url, body });
const question = {
  model: demoId,
  messages: [{ role: 'user', content: 'What is the code of Alice?' }],
  temperature: 0,
  max_tokens: 6,
};

interface ResultLine {
  readonly id: string;
  readonly custom_id: string | null;
  readonly response: { readonly status_code: number; readonly request_id: string; readonly body: Answer } | null;
  readonly error: { readonly code: string; readonly message: string } | null;
}

interface Answer {
  readonly choices: readonly { readonly message: { readonly content: string } }[];
  readonly data: readonly { readonly embedding: number[] }[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
  readonly error: { readonly code: string };
}

async function resultsOf(batchId: string, kind: ResultKind): Promise<ResultLine[]> {
  const lines: ResultLine[] = [];
  for await (const line of batchResults(store, batchId, kind)) lines.push(JSON.parse(line) as ResultLine);
  return lines;
}

function enqueue(batchId: string, lines: readonly string[], options?: EnqueueLinesOptions) {
  return enqueueBatchLines(store, batchId, [new TextEncoder().encode(lines.join('\n'))], options);
}

/** Answers what waits, of a batch. */
function answer(batchId: string, concurrency = 4, prefixGrouping = true): Promise<void> {
  return runWorker(store, {
    name: 'test',
    concurrency,
    pollMs: 5,
    handler: batchLineHandler((request) => server.call(request), { prefixGrouping }),
    isDone: async () => {
      const { waiting, running } = await store.counts(batchId);
      return waiting + running === 0;
    },
  });
}

test('answers are those of the model, in the order of the lines, for every endpoint', async () => {
  const lines = [
    lineOf('chat', question),
    lineOf('text', { prompt: 'Once upon a time', max_tokens: 3 }, '/v1/completions'),
    lineOf('vector', { model: demoId, input: 'A storm' }, '/v1/embeddings'),
    lineOf('again', question),
  ].map((line) => line.replace('"body":{"prompt"', `"body":{"model":"${demoId}","prompt"`));
  const { numLines, numRejected, endpoints } = await enqueue('all', lines);
  expect([numLines, numRejected, [...endpoints]]).toEqual([
    4,
    0,
    ['/v1/chat/completions', '/v1/completions', '/v1/embeddings'],
  ]);
  await answer('all');
  const results = await resultsOf('all', 'output');
  expect(results.map(({ custom_id: id }) => id)).toEqual(['chat', 'text', 'vector', 'again']);
  const expected = await model.generate(question.messages as never, { temperature: 0, maxTokens: 6 }).result();
  const [chat, , vector, again] = results;
  expect(chat?.response?.body.choices[0]?.message.content).toBe(expected.text);
  expect(again?.response?.body.choices).toEqual(chat?.response?.body.choices);
  expect(vector?.response?.body.data[0]?.embedding).toHaveLength(embedder.dimensions);
  for (const { id, response, error } of results) {
    expect(id).toMatch(/^batch_req_[0-9a-f]{24}$/);
    expect(response).toMatchObject({ status_code: 200, request_id: expect.stringMatching(/^[0-9a-f]{32}$/) });
    expect(error).toBe(null);
  }
  expect(await resultsOf('all', 'errors')).toEqual([]);
});

test('lines that are none, or that the server rejects, fail alone and with their errors', async () => {
  const lines = [
    'not JSON',
    '[]',
    JSON.stringify({ method: 'POST', url: '/v1/completions', body: {} }),
    JSON.stringify({ custom_id: 'method', method: 'GET', url: '/v1/completions', body: {} }),
    lineOf('path', {}, '/v1/models'),
    lineOf('stream', { ...question, stream: true }),
    JSON.stringify({ ...JSON.parse(lineOf('more', question)), extra: 1 }),
    lineOf('good', question),
    lineOf('good', question),
    lineOf('value', { ...question, temperature: 9 }),
    lineOf('model', { ...question, model: 'other' }),
    lineOf('long', { ...question, messages: [{ role: 'user', content: 'word '.repeat(4000) }] }),
  ];
  expect(await enqueue('poison', lines)).toMatchObject({ numLines: 12, numRejected: 8 });
  // the same input again changes nothing
  expect(await enqueue('poison', lines)).toMatchObject({ numLines: 12 });
  await answer('poison');
  expect((await resultsOf('poison', 'output')).map(({ custom_id: id }) => id)).toEqual(['good']);
  const errors = await resultsOf('poison', 'errors');
  const facts = errors.map(({ custom_id: id, response, error }) => [id, error?.code ?? response?.body.error.code]);
  expect(facts).toEqual([
    [null, 'invalid_json_line'],
    [null, 'invalid_json_line'],
    [null, 'invalid_custom_id'],
    ['method', 'invalid_method'],
    ['path', 'invalid_url'],
    ['stream', 'invalid_body'],
    ['more', 'unknown_parameter'],
    ['good', 'duplicate_custom_id'],
    ['value', 'invalid_value'],
    ['model', 'model_not_found'],
    ['long', 'context_length_exceeded'],
  ]);
  expect(errors.map(({ response }) => response?.status_code)).toEqual([...Array(8), 400, 404, 400]);
  expect(errors[0]?.error?.message).toMatch(/^line 1: expected JSON/);
});

test('a line is tried again when the server fails, a few times', async () => {
  await enqueue('defect', [lineOf('a', { ...question, model: 'broken' })]);
  const [retries, handler] = [[] as number[], batchLineHandler((request) => server.call(request))];
  const drain = new AbortController();
  await runWorker(store, {
    name: 'test',
    concurrency: 1,
    handler: (job, context) => {
      retries.push(job.attempt);
      return handler(job, context);
    },
    onEnd: () => drain.abort(),
    drain: drain.signal,
  });
  expect(retries).toEqual([1]);
  const [info] = await store.list('defect');
  expect(info).toMatchObject({ state: 'waiting', error: { code: 'internal_error', message: 'Internal error' } });
  const context = { signal: drain.signal, report: () => {} };
  const job = { batchId: 'defect', customId: 'a', index: 0, queue: '', token: '', isSuspect: false };
  const last = handler(
    {
      ...job,
      attempt: 3,
      payload: JSON.stringify({ url: '/v1/chat/completions', body: { ...question, model: 'broken' } }),
    },
    { ...context, signal: new AbortController().signal },
  );
  await expect(last).rejects.toMatchObject({ name: 'JobFailure', options: { retry: false } });
  await store.remove('defect');
});

test('the beginning that prompts share is computed once, in any order of the lines', async () => {
  const beginnings = ['harbor', 'garden', 'winter'].map((word) => `The ${word} was old and quiet. `.repeat(40));
  const lines = Array.from({ length: 24 }, (_, i) => {
    const prompt = `${beginnings[i % 3]} Question ${i}:`;
    return lineOf(`line-${i}`, { model: demoId, prompt, max_tokens: 1 }, '/v1/completions');
  });
  await enqueue('shared', lines);
  await answer('shared');
  const usages = (await resultsOf('shared', 'output')).map(({ response }) => response?.body.usage);
  const computed = usages.map(
    (usage) => (usage?.prompt_tokens ?? 0) - (usage?.prompt_tokens_details.cached_tokens ?? 0),
  );
  // the first of each group computes its prompt, the others what follows the last full page of the beginning
  const pageSize = 64;
  const numOwn = Math.max(
    ...lines.map(
      (line) => (JSON.parse(line) as { body: { prompt: string } }).body.prompt.match(/ Question.*$/)?.[0].length ?? 0,
    ),
  );
  expect(computed.filter((count) => count > pageSize + numOwn)).toHaveLength(3);
  expect(usages[0]?.prompt_tokens).toBeGreaterThan(5 * pageSize);
});

test('a canceled line ends at once', async () => {
  await enqueue('silent', [lineOf('a', { ...question, model: 'silent' })]);
  const ended = runWorker(store, {
    name: 'test',
    concurrency: 1,
    leaseMs: 300,
    handler: batchLineHandler((request) => server.call(request)),
    isDone: async () => (await store.counts('silent')).canceled === 1,
  });
  for await (const { event } of store.events({ batchId: 'silent', after: 0, signal: AbortSignal.timeout(60_000) })) {
    if (event === 'running') break;
  }
  await store.cancel('silent');
  await ended;
  expect(server.openApi()).toBeDefined();
  expect(await resultsOf('silent', 'output')).toEqual([]);
});

test('calls need no key and count for no rate; clients do', async () => {
  const request = { path: '/v1/completions', body: JSON.stringify({ model: demoId, prompt: 'a', max_tokens: 1 }) };
  const [first, second] = [await server.call(request), await server.call(request)];
  expect([first.status, second.status]).toEqual([200, 200]);
  expect(first.requestId).not.toBe(second.requestId);
  const url = await server.listen({ port: 0 });
  const post = (headers: Record<string, string>): Promise<Response> =>
    fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: request.body,
    });
  expect((await post({})).status).toBe(401);
  expect((await post({ authorization: 'Bearer secret' })).status).toBe(200);
  expect((await post({ authorization: 'Bearer secret' })).status).toBe(429);
  expect((await server.call(request)).status).toBe(200);
});

test('a call can be aborted', async () => {
  const ending = new AbortController();
  const call = server.call({
    path: '/v1/chat/completions',
    body: JSON.stringify({ ...question, model: 'silent' }),
    signal: ending.signal,
    onPrompt: () => ending.abort(new Error('enough')),
  });
  await expect(call).rejects.toThrow('enough');
});

test('owners share no cached prefixes', async () => {
  const prompt = 'Once upon a time in the harbor. '.repeat(20);
  const body = JSON.stringify({ model: demoId, prompt, max_tokens: 1, temperature: 0 });
  const cachedOf = async (owner: string): Promise<number> => {
    const { body: text } = await server.call({ path: '/v1/completions', body, owner });
    const { usage } = JSON.parse(text) as { usage: { prompt_tokens_details?: { cached_tokens: number } } };
    return usage.prompt_tokens_details?.cached_tokens ?? 0;
  };
  expect(await cachedOf('one')).toBe(0);
  expect(await cachedOf('one')).toBeGreaterThan(0);
  expect(await cachedOf('two')).toBe(0);
});
