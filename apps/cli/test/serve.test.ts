/** `winnow serve`: its flags and signals. The server is tested in its own package. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { EmbeddingModel, PromptStore, Reranker } from '@winnow/engine';
import type { CloseOptions, ListenOptions, ServerOptions } from '@winnow/server';
import { NonFiniteError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import type { ServerApi } from '../src/terminal/io.js';
import { createFakeEngine } from './fake-engine.js';
import { runCli, TestHost, type CliSetup } from './run-cli.js';

interface FakeServer {
  readonly api: ServerApi;
  readonly created: ServerOptions[];
  readonly listened: (ListenOptions | undefined)[];
  readonly closed: (CloseOptions | undefined)[];
}

function createFakeServer(): FakeServer {
  const [created, listened, closed]: [FakeServer['created'], FakeServer['listened'], FakeServer['closed']] = [
    [],
    [],
    [],
  ];
  return {
    created,
    listened,
    closed,
    api: {
      createServer: async (options) => {
        created.push(options);
        const close = async (closeOptions?: CloseOptions): Promise<void> => void closed.push(closeOptions);
        return {
          listen: async (listenOptions) => {
            listened.push(listenOptions);
            return 'http://127.0.0.1:8080';
          },
          close,
          openApi: () => ({}),
          [Symbol.asyncDispose]: async () => {},
        };
      },
    },
  };
}

async function serve(argv: readonly string[], setup: CliSetup = {}, end: 'interrupt' | 'terminate' = 'interrupt') {
  const fake = createFakeEngine();
  const server = createFakeServer();
  const host = new TestHost(fake.api, { server: server.api, ...setup });
  const run = host.run(['serve', ...argv]);
  await host.untilShown('listening on http://127.0.0.1:8080\n');
  host[end]();
  return { fake, server, ...(await run) };
}

test('without arguments serves the demo model on the loopback interface', async () => {
  const { fake, server, code, stdout } = await serve([]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: 'listening on http://127.0.0.1:8080\n' });
  expect(server.listened).toEqual([{ port: 8080, host: '127.0.0.1' }]);
  expect(server.created).toMatchObject([
    { models: [{ id: 'winnow-tiny', maxSessions: 4 }], embeddingModels: [], apiKeys: [] },
  ]);
  expect(server.created[0]).not.toHaveProperty('corsOrigins');
  expect(server.created[0]?.page?.pathname).toMatch(/\/playground\/dist\/page\/$/);
  expect(fake.loads).toMatchObject([{ options: { maxSessions: 4, kvCache: { whenFull: 'wait' } } }]);
  expect(fake.disposed.count).toBe(1);
});

test('flags are passed to the engine and the server', async () => {
  const { fake, server } = await serve([
    ...['a.gguf', 'b.gguf', '--alias', 'small', '--port', '0', '--host', '::1', '--api-key', 'k1', '--api-key', 'k2'],
    ...[
      '--cors-origin',
      'https://app.example',
      '--parallel',
      '2',
      '--kv-capacity',
      '4096',
      '--max-queued',
      '0',
      '-c',
      '512',
    ],
    ...['--queue-timeout', '1.5', '--request-timeout', '90', '--max-body', '1MiB', '--grace', '7', '--kv-dtype', 'f16'],
    ...['--stall-timeout', '5', '--keep-alive', '2', '--max-connections', '9', '--max-stored', '2MiB'],
    ...['--requests-per-minute', '60', '--tokens-per-minute', '1000', '--no-page'],
    ...['--page-origin', 'https://mcp.example'],
  ]);
  expect(fake.loads.map(({ location }) => location)).toEqual(['a.gguf', 'b.gguf']);
  for (const { options } of fake.loads) {
    expect(options).toMatchObject({
      maxSessions: 2,
      context: 512,
      kvCache: { capacity: 4096, dtype: 'f16', whenFull: 'wait' },
    });
  }
  expect(server.created).toMatchObject([
    {
      models: [{ id: 'small', maxSessions: 2 }, { maxSessions: 2 }],
      apiKeys: ['k1', 'k2'],
      corsOrigins: ['https://app.example'],
      pageOrigins: ['https://mcp.example'],
      maxQueued: 0,
      queueTimeoutMs: 1500,
      requestTimeoutMs: 90_000,
      maxBodyBytes: 2 ** 20,
      stallTimeoutMs: 5000,
      keepAliveMs: 2000,
      maxConnections: 9,
      maxStoredBytes: 2 * 2 ** 20,
      requestsPerMinute: 60,
      tokensPerMinute: 1000,
    },
  ]);
  expect(server.created[0]).not.toHaveProperty('page');
  expect(server.listened).toEqual([{ port: 0, host: '::1' }]);
  expect(server.closed).toEqual([{ graceMs: 7000 }]);
  expect(fake.disposed.count).toBe(2);
});

test('embedding models have the ids of the flags', async () => {
  const server = createFakeServer();
  const { api } = createFakeEngine();
  const embedder = {
    name: 'f',
    plan: { totalBytes: 5 },
    notices: [],
    fallbacks: [],
    [Symbol.asyncDispose]: async () => {},
  } as unknown as EmbeddingModel;
  const host = new TestHost({ ...api, loadEmbeddingModel: async () => embedder }, { server: server.api });
  const run = host.run([
    ...['serve', '--embedding-model', 'e.gguf', '--embedding-model', 'f.gguf', '--embedding-alias', 'small'],
  ]);
  await host.untilShown('listening');
  host.interrupt();
  await run;
  expect(server.created[0]?.embeddingModels?.map(({ id }) => id)).toEqual(['small', 'f']);
});

test('rerankers have the ids of the flags, and need no other model', async () => {
  const server = createFakeServer();
  const { api, loads } = createFakeEngine();
  const reranker = { name: 'r', plan: { totalBytes: 5 }, notices: [], fallbacks: [] };
  const owned = { ...reranker, [Symbol.asyncDispose]: async () => {} } as unknown as Reranker;
  const host = new TestHost({ ...api, loadReranker: async () => owned }, { server: server.api });
  const run = host.run(['serve', '--reranker', 'a.gguf', '--reranker', 'r.gguf', '--reranker-id', 'cross']);
  await host.untilShown('listening');
  host.interrupt();
  await run;
  expect(server.created[0]?.rerankers?.map(({ id }) => id)).toEqual(['cross', 'r']);
  expect(loads).toEqual([]);
});

test('from a shared queue a server takes the lines for its reranker, also those that name none', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'winnow-serve-'));
  const server = createFakeServer();
  const model = { name: 'r', plan: { totalBytes: 5 }, notices: [], fallbacks: [] };
  const owned = { ...model, [Symbol.asyncDispose]: async () => {} } as unknown as Reranker;
  const host = new TestHost({ ...createFakeEngine().api, loadReranker: async () => owned }, { server: server.api });
  const run = host.run(['serve', '--reranker', 'a.gguf', '--batch-dir', folder, '--queue', join(folder, 'jobs.db')]);
  await host.untilShown('listening');
  host.interrupt();
  await run;
  rmSync(folder, { recursive: true });
  expect(server.created[0]?.batches?.queues).toEqual(['r', 'default-rerankers']);
});

test('flags configure the shared KV cache', async () => {
  const { fake } = await serve(['--kv-when-full', 'error', '--no-kv-prefix-sharing']);
  expect(fake.loads[0]?.options.kvCache).toEqual({ whenFull: 'error', prefixSharing: false });
});

test('the key can come from the environment, hidden from process lists', async () => {
  const env = { WINNOW_API_KEY: 'secret' };
  expect((await serve([], { env })).server.created[0]?.apiKeys).toEqual(['secret']);
  expect((await serve(['--api-key', 'other'], { env })).server.created[0]?.apiKeys).toEqual(['other']);
});

test('a public address without a key gives a warning', async () => {
  const warning = 'anyone who can reach this address';
  expect((await serve(['--host', '0.0.0.0'])).stderr).toContain(warning);
  expect((await serve(['--host', '0.0.0.0', '--api-key', 'k'])).stderr).not.toContain(warning);
  expect((await serve([])).stderr).not.toContain(warning);
});

test('--visited-keys loads models that count them', async () => {
  expect((await serve(['--visited-keys'])).fake.loads[0]?.options.trace).toEqual({ visitedKeys: true });
});

test('SIGTERM ends it like Ctrl-C, a second one at once', async () => {
  const { code, server } = await serve([], {}, 'terminate');
  expect([code, server.closed]).toEqual([0, [{ graceMs: 30_000 }]]);
  const host = new TestHost(createFakeEngine().api, { server: createFakeServer().api });
  const run = host.run(['serve']);
  await host.untilShown('listening');
  host.terminate();
  host.interrupt();
  await run;
  expect(host.exitNowCode).toBe(130);
});

test('each request is logged as a line of text or JSON, unless quiet', async () => {
  const text = 'winnow: POST /v1/completions 200 0.123 s abc\n';
  const endedAt = '2026-01-02T03:04:05.678Z';
  const record = { requestId: 'abc', method: 'POST', path: '/v1/completions', status: 200, durationMs: 123.4, endedAt };
  const fields = { time: endedAt, request_id: 'abc', method: 'POST', path: '/v1/completions', status: 200 };
  const json = `${JSON.stringify({ ...fields, duration_ms: 123 })}\n`;
  for (const [argv, isText, isJson] of [
    [[], true, false],
    [['-q'], false, false],
    [['--log-format', 'json'], false, true],
    [['--log-format', 'json', '-q'], false, false],
  ] as const) {
    const server = createFakeServer();
    const host = new TestHost(createFakeEngine().api, { server: server.api });
    const run = host.run(['serve', ...argv]);
    await host.untilShown('listening');
    server.created[0]?.onRequest?.(record);
    host.interrupt();
    const { stderr } = await run;
    expect([stderr.includes(text), stderr.includes(json)]).toEqual([isText, isJson]);
  }
});

test('internal errors are logged: typed ones as a line, others with their stack', async () => {
  const server = createFakeServer();
  const host = new TestHost(createFakeEngine().api, { server: server.api });
  const run = host.run(['serve', '-q']);
  await host.untilShown('listening');
  server.created[0]?.onError?.(new NonFiniteError({ result: 'logits', value: NaN, tensor: 'a.weight' }));
  server.created[0]?.onError?.(new TypeError('x is undefined'));
  host.interrupt();
  const lines = (await run).stderr.split('\n');
  expect(lines.slice(0, 2)).toEqual([
    'winnow: logits: expected finite values, got NaN; the first tensor with such a value is a.weight',
    'winnow: TypeError: x is undefined',
  ]);
  expect(lines[2]).toMatch(/^ +at /);
});

test.each([
  ['--port 70000', "--port: expected a port from 0 to 65535, got '70000'"],
  ['--max-sessions 0', "--max-sessions: expected an integer of at least 1, got '0'"],
  ['--request-timeout 0', "--request-timeout: expected a number above 0, got '0'"],
  ['a.gguf --model-id x --model-id y', '--model-id: expected at most 1, one per model, got 2'],
  ['--reranker a --reranker-id x --reranker-id y', '--reranker-id: expected at most 1, one per reranker, got 2'],
  ['a.gguf --embedding-alias x', '--embedding-model-id: expected at most 0, one per embedding model, got 1'],
])('winnow serve %s exits with 2', async (line, message) => {
  const { code, stderr } = await runCli(createFakeEngine().api, ['serve', ...line.split(' ')]);
  expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
});

test('a prompt cache on disk is one store for all models', async () => {
  const server = createFakeServer();
  const { api, loads } = createFakeEngine();
  const store = {} as PromptStore;
  const opened: unknown[] = [];
  const openPromptStore = async (...given: unknown[]): Promise<PromptStore> => {
    opened.push(given);
    return store;
  };
  const host = new TestHost({ ...api, openPromptStore }, { server: server.api });
  const run = host.run(['serve', 'a.gguf', 'b.gguf', '--cache-dir', 'pages', '--cache-size', '2GB']);
  await host.untilShown('listening');
  host.interrupt();
  await run;
  expect(opened).toEqual([['pages', { maxBytes: 2e9 }]]);
  expect(loads.map(({ options }) => options.promptCache)).toEqual([[store], [store]]);
  const { code, stderr } = await runCli(api, ['serve', '--cache-size', '2GB']);
  expect([code, stderr]).toEqual([2, expect.stringContaining('--cache-size: requires --cache-dir')]);
});
