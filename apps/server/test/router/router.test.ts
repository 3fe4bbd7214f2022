/** The router in front of real servers, whose network breaks where a test wants it to. */
import Anthropic from '@anthropic-ai/sdk';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Model } from '@winnow/engine';
import { createFolderBlobStore, openSqliteJobStore } from '@winnow/jobs/node';
import { Ollama } from 'ollama';
import OpenAI, { toFile } from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { createRouter, type RouterOptions, type UpstreamEvent, type WinnowRouter } from '../../src/router/index.js';
import { routeEntries } from '../../src/router/routes.js';
import { demoId, loadDemoModel, postJson, startServer, until, type DemoServer } from '../demo-server.js';
import { endless } from '../fake-models.js';
import { breakNetwork, type BrokenNetwork } from './broken-network.js';

let model: Model;
let first: DemoServer;
let second: DemoServer;
let network: BrokenNetwork;
beforeAll(async () => {
  model = await loadDemoModel({ maxSessions: 16 }); // of all servers together
  first = await startServer({ models: [{ id: demoId, model }] });
  second = await startServer({
    models: [
      { id: demoId, model },
      { id: 'endless', model: endless(model) },
    ],
  });
  network = await breakNetwork(first.url);
});
afterAll(async () => {
  await network?.close();
  await first?.close();
  await second?.close();
  await model?.dispose();
});

const routers: WinnowRouter[] = [];
afterEach(async () => {
  for (const router of routers.splice(0)) await router.close({ graceMs: 0 });
  network.cutAfterBytes = Infinity;
});

async function route(upstreams: readonly string[], options: Partial<RouterOptions> = {}): Promise<string> {
  const router = await createRouter({ upstreams, checkIntervalMs: 100, ...options });
  routers.push(router);
  return router.listen({ port: 0 });
}

const clientOf = (url: string, apiKey = 'none'): OpenAI => new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const messages = [{ role: 'user' as const, content: 'What is the code of Alice?' }];
const chat = { model: demoId, messages, max_tokens: 40, temperature: 0 };
const metricOf = async (url: string, name: string): Promise<number> => {
  const lines = (await (await fetch(`${url}/metrics`)).text()).split('\n').filter((line) => line.startsWith(name));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
};

const numFailures = (url: string): Promise<number> => metricOf(url, 'winnow_router_upstream_failures_total');

/** The events of a stream with their names and data, or its lines. */
async function eventsOf(response: Response): Promise<(string | Record<string, unknown>)[]> {
  const text = await response.text();
  const data = [...text.matchAll(/^(?:data: )?(\{.*\}|\[DONE\])$/gm)].map(([, value = '']) => value);
  return data.map((value) => (value === '[DONE]' ? value : (JSON.parse(value) as Record<string, unknown>)));
}

const streams: readonly (readonly [string, string, object])[] = [
  ['OpenAI', '/v1/chat/completions', { ...chat, stream: true }],
  [
    'Responses',
    '/v1/responses',
    { model: demoId, input: messages[0]?.content, max_output_tokens: 40, temperature: 0, stream: true },
  ],
  ['Anthropic', '/v1/messages', { model: demoId, max_tokens: 40, messages, temperature: 0, stream: true }],
  ['Ollama', '/api/chat', { model: demoId, messages, options: { num_predict: 40, temperature: 0 } }],
];
const message = 'The connection to the server of this answer was lost; the answer is incomplete';

describe('a server that is lost', () => {
  test.each(streams)('during a stream of %s: the last event is an error of its API', async (api, path, body) => {
    const url = await route([network.url]);
    network.cutAfterBytes = 1500; // some events, and a part of the next
    const response = await postJson(`${url}${path}`, body);
    expect(response.status).toBe(200);
    const events = (await eventsOf(response)) as Record<string, unknown>[];
    const last = events.at(-1);
    expect(events.length).toBeGreaterThan(1);
    const errors: Record<string, object> = {
      OpenAI: { error: { message, type: 'server_error', param: null, code: 'upstream_lost' } },
      Responses: { type: 'error', code: 'upstream_lost', message, param: null, sequence_number: events.length - 1 },
      Anthropic: { type: 'error', error: { type: 'api_error', message } },
      Ollama: { error: message },
    };
    expect(last).toEqual(errors[api]);
    expect(await metricOf(url, 'winnow_router_streams_broken_total')).toBe(1);
  });

  test('is an exception of the official client, after the text that had come', async () => {
    const client = clientOf(await route([network.url]));
    network.cutAfterBytes = 1500;
    const stream = await client.chat.completions.create({ ...chat, stream: true });
    let text = '';
    const read = (async () => {
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
    })();
    await expect(read).rejects.toThrow(message);
    expect(text).not.toBe('');
  });
});

describe('a server that is lost before its answer', () => {
  test.each([
    ['before its headers', -1],
    ['before its first event', 0],
    ['within its first event', 60],
  ])('%s: another one answers', async (_when, cutAfterBytes) => {
    const url = await route([network.url, second.url]);
    const alone = await eventsOf(await postJson(`${second.url}/v1/chat/completions`, { ...chat, stream: true }));
    network.cutAfterBytes = cutAfterBytes;
    const textOf = (events: unknown[]): unknown[] =>
      events.map((event) => (event as { choices?: unknown }).choices ?? event);
    do {
      const events = await eventsOf(await postJson(`${url}/v1/chat/completions`, { ...chat, stream: true }));
      expect(textOf(events)).toEqual(textOf(alone));
    } while ((await numFailures(url)) === 0); // servers with the same load take turns
  });

  test('two servers are lost with a request: no third one gets it', async () => {
    const copies = await Promise.all([breakNetwork(first.url), breakNetwork(first.url)]);
    try {
      for (const each of [network, ...copies]) each.cutAfterBytes = -1;
      const url = await route([network, ...copies].map((each) => each.url));
      const response = await postJson(`${url}/v1/chat/completions`, chat);
      expect([response.status, await response.json()]).toMatchObject([502, { error: { code: 'upstream_lost' } }]);
      expect(await numFailures(url)).toBe(2);
    } finally {
      for (const each of copies) await each.close();
    }
  });

  test('during a whole answer: another one answers', async () => {
    const url = await route([network.url, second.url]);
    network.cutAfterBytes = 100;
    const client = clientOf(url);
    // their beginnings decide where they go
    for (let count = 0; (await numFailures(url)) === 0; count++) {
      const asked = { ...chat, messages: [{ role: 'user' as const, content: `${count} is the code of whom?` }] };
      const alone = await second.client.chat.completions.create(asked);
      expect((await client.chat.completions.create(asked)).choices).toEqual(alone.choices);
    }
  });
});

describe('a server that cannot be reached', () => {
  test.each(streams)('with no other: 503 in the format of %s', async (api, path, body) => {
    const url = await route(['http://127.0.0.1:1']);
    const response = await postJson(`${url}${path}`, body);
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1']);
    const text = 'No server is available for this request';
    const shapes: Record<string, object> = {
      Anthropic: { type: 'error', error: { type: 'overloaded_error', message: text } },
      Ollama: { error: text },
    };
    const openAi = { error: { message: text, type: 'server_error', param: null, code: 'no_upstream' } };
    expect(await response.json()).toEqual(shapes[api] ?? openAi);
    expect((await fetch(`${url}/health`)).status).toBe(503);
  });
});

test('a server that has closed an idle connection is not lost', async () => {
  const used = new WeakSet<Socket>();
  let numClosed = 0;
  const server = createServer(({ socket }, reply) => {
    if (!used.has(socket)) return used.add(socket) && reply.end('{}');
    numClosed++;
    return socket.destroy();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const events: UpstreamEvent[] = [];
  const { port } = server.address() as AddressInfo;
  await route([`http://127.0.0.1:${port}`], { checkIntervalMs: 10, onUpstream: (event) => void events.push(event) });
  await until(() => numClosed > 5);
  expect(events.map(({ state }) => state)).toEqual(['up']);
  server.close();
});

describe('what must not be done twice', () => {
  /** A server that cuts used connections when it has read a POST. @returns its POSTs so far */
  async function forgetful(): Promise<{ readonly url: string; readonly posts: string[] }> {
    const used = new WeakSet<Socket>();
    const posts: string[] = [];
    const server = createServer((request, reply) => {
      const { socket, method, url = '' } = request;
      request.resume().once('end', () => {
        if (method === 'POST') posts.push(url);
        if (method === 'POST' && used.has(socket)) return void socket.destroy();
        used.add(socket);
        reply.end('{}');
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    closers.push(() => server.close());
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, posts };
  }
  const closers: (() => void)[] = [];
  afterEach(() => {
    for (const close of closers.splice(0)) close();
  });

  test.each([
    ['/v1/batches', { input_file_id: 'file' }, 1],
    ['/v1/responses', { input: 'Hi' }, 1],
    ['/v1/responses', { input: 'Hi', store: false }, 2],
    ['/v1/completions', { prompt: 'Hi' }, 2],
  ])('%s %j: a server that cuts a used connection gets it %i times', async (path, body, numTimes) => {
    const { url, posts } = await forgetful();
    const router = await route([url], { batchUpstream: url, checkIntervalMs: 3_600_000 });
    await fetch(`${router}/v1/files`); // leaves an idle connection, as the health check did
    expect((await postJson(`${router}${path}`, body)).status).toBe(200);
    expect(posts).toEqual(Array.from({ length: numTimes }, () => path));
  });

  test('the official client does not repeat a batch that the lost server may have', async () => {
    const url = await route([first.url], { batchUpstream: network.url });
    network.cutAfterBytes = -1;
    const create = { input_file_id: 'none', endpoint: '/v1/completions', completion_window: '24h' } as const;
    const asked: string[] = [];
    const counted: typeof fetch = (...args) => {
      asked.push(String(args[0]));
      return fetch(...args);
    };
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 2, fetch: counted });
    await expect(client.batches.create(create)).rejects.toMatchObject({ status: 502, code: 'upstream_lost' });
    expect(asked).toHaveLength(1);
  });
});

test('a server that is lost before its first event, with no other, is an error response', async () => {
  const url = await route([network.url]);
  network.cutAfterBytes = 0;
  const response = await postJson(`${url}/v1/chat/completions`, { ...chat, stream: true });
  expect([response.status, response.headers.get('content-type')]).toEqual([503, 'application/json; charset=utf-8']);
  expect(await response.json()).toMatchObject({ error: { code: 'no_upstream' } });
});

describe('the choice of a server', () => {
  test('each turn of a conversation goes to the server of the turns before', async () => {
    const url = await route([first.url, second.url]);
    const client = clientOf(url);
    for (let index = 0; index < 4; index++) {
      const turns: OpenAI.ChatCompletionMessageParam[] = [
        { role: 'user', content: `${index}: ${'tell me about the old man and the sea, '.repeat(8)}` },
      ];
      const before = await metricOf(url, 'winnow_router_choices_total{reason="prefix"}');
      for (let turn = 0; turn < 3; turn++) {
        const { choices } = await client.chat.completions.create({ ...chat, messages: turns, max_tokens: 4 });
        turns.push(
          { role: 'assistant', content: choices[0]?.message.content ?? '' },
          { role: 'user', content: 'Go on.' },
        );
      }
      expect((await metricOf(url, 'winnow_router_choices_total{reason="prefix"}')) - before).toBe(2);
    }
  });
});

describe('models and stored responses', () => {
  test('a model goes to a server that has it, and the lists become one', async () => {
    const client = clientOf(await route([first.url, second.url]));
    const listed = (await client.models.list()).data.map(({ id }) => id);
    expect(listed.toSorted()).toEqual(['endless', demoId].toSorted());
    for (let count = 0; count < 4; count++) {
      expect((await client.completions.create({ model: 'endless', prompt: 'Hi', max_tokens: 2 })).model).toBe(
        'endless',
      );
    }
  });

  test('a stored response is continued where it is, also through a router that has not seen it', async () => {
    const upstreams = [first.url, second.url];
    const client = clientOf(await route(upstreams));
    for (let count = 0; count < 3; count++) {
      const { id } = await client.responses.create({ model: demoId, input: `Hi ${count}`, max_output_tokens: 3 });
      const other = clientOf(await route(upstreams));
      for (const each of [client, other]) {
        const next = await each.responses.create({
          model: demoId,
          input: 'Go on',
          previous_response_id: id,
          max_output_tokens: 3,
        });
        expect(next.previous_response_id).toBe(id);
        expect((await each.responses.retrieve(id)).id).toBe(id);
      }
    }
    await expect(client.responses.retrieve('resp_unknown')).rejects.toMatchObject({ status: 404 });
  });

  test('a server that closes gets no more requests, and one that is lost is reported', async () => {
    const third = await startServer({ models: [{ id: 'third', model }] });
    const events: UpstreamEvent[] = [];
    const url = await route([third.url, second.url], { onUpstream: (event) => void events.push(event) });
    expect((await postJson(`${url}/v1/completions`, { model: 'third', prompt: 'Hi', max_tokens: 1 })).status).toBe(200);
    await third.close();
    await until(() => events.some(({ upstream, state }) => upstream === third.url && state === 'down'));
    expect((await postJson(`${url}/v1/completions`, { model: 'third', prompt: 'Hi', max_tokens: 1 })).status).toBe(404);
    expect((await (await fetch(`${url}/health`)).json()) as object).toEqual({ status: 'ok', upstreams: 2, up: 1 });
  });
});

describe('what is passed on', () => {
  test('clients of Anthropic and Ollama work through the router', async () => {
    const url = await route([first.url]);
    const anthropic = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });
    const said = await anthropic.messages.create({ model: demoId, max_tokens: 3, messages });
    expect(said.usage.output_tokens).toBe(3);
    const ollama = new Ollama({ host: url });
    const parts = await ollama.chat({ model: `${demoId}:latest`, messages, stream: true, options: { num_predict: 3 } });
    let isDone = false;
    for await (const { done } of parts) isDone = done;
    expect(isDone).toBe(true);
    expect((await ollama.list()).models.map(({ name }) => name)).toHaveLength(1);
  });

  test('API keys reach the servers; keys of the router are checked before', async () => {
    const locked = await startServer({ models: [{ id: demoId, model }], apiKeys: ['right', 'other'] });
    try {
      const open = await route([locked.url], { upstreamApiKey: 'right' });
      const closed = await route([locked.url], { apiKeys: ['other'] });
      const ask = (url: string, key: string) =>
        clientOf(url, key).completions.create({ model: demoId, prompt: 'a', max_tokens: 1 });
      expect((await ask(open, 'right')).choices).toHaveLength(1);
      expect((await ask(closed, 'other')).choices).toHaveLength(1);
      const wrong = { status: 401, code: 'invalid_api_key' };
      await expect(ask(open, 'wrong')).rejects.toMatchObject(wrong);
      await expect(ask(closed, 'right')).rejects.toMatchObject(wrong);
      expect(await metricOf(open, 'winnow_router_upstream_slots')).toBe(4); // read with its own key
    } finally {
      await locked.close();
    }
  });

  test('errors of the servers are passed on, bodies are limited', async () => {
    const url = await route([first.url], { maxBodyBytes: 1000 });
    const unknown = await postJson(`${url}/v1/chat/completions`, { ...chat, model: 'none' });
    expect([unknown.status, await unknown.json()]).toMatchObject([404, { error: { code: 'model_not_found' } }]);
    const large = await postJson(`${url}/v1/messages`, {
      model: demoId,
      messages,
      max_tokens: 1,
      system: 'a'.repeat(2000),
    });
    expect([large.status, await large.json()]).toMatchObject([413, { error: { type: 'request_too_large' } }]);
    expect((await fetch(`${url}/operator`)).status).toBe(404);
    expect((await fetch(url, { headers: { host: 'rebound.example' } })).status).toBe(404); // fetch sets the header itself
  });
});

describe('uploads', () => {
  test('files and batches go to their server, or are refused', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'winnow-router-'));
    const jobs = await openSqliteJobStore(join(folder, 'jobs.db'));
    const batches = { jobs, blobs: createFolderBlobStore(join(folder, 'blobs')), concurrency: 0 };
    const server = await startServer({ batches });
    try {
      const file = await toFile(Buffer.from('{}\n'.repeat(100_000)), 'requests.jsonl');
      const { id, bytes } = await clientOf(
        await route([first.url], { batchUpstream: server.url, maxBodyBytes: 1000 }),
      ).files.create({
        file,
        purpose: 'batch',
      });
      expect(bytes).toBe(300_000);
      expect(await (await server.client.files.content(id)).text()).toBe('{}\n'.repeat(100_000));
      const refused = clientOf(await route([first.url])).files.list();
      await expect(refused).rejects.toMatchObject({ status: 501, code: 'no_batch_upstream' });
    } finally {
      await server.close();
      await jobs.close();
      rmSync(folder, { recursive: true });
    }
  });
});

describe('the end of a request', () => {
  test('a router that closes lets its streams finish and refuses requests', async () => {
    const url = await route([second.url]);
    const router = routers[0] as WinnowRouter;
    const body = { model: 'endless', prompt: 'Once', max_tokens: 60, stream: true };
    const response = await postJson(`${url}/v1/completions`, body);
    const closed = router.close();
    expect((await eventsOf(response)).at(-1)).toBe('[DONE]');
    await closed;
    await expect(fetch(`${url}/health`)).rejects.toThrow();
    await router.close();
  });

  test('a client that leaves ends its request at the server', async () => {
    const url = await route([second.url]);
    const controller = new AbortController();
    const body = JSON.stringify({ model: 'endless', prompt: 'Once', max_tokens: 2000, stream: true });
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${url}/v1/completions`, { method: 'POST', headers, body, signal: controller.signal });
    await response.body?.getReader().read();
    controller.abort();
    await until(async () => (await metricOf(url, 'winnow_router_upstream_in_flight')) === 0);
    await until(async () => (await metricOf(second.url, 'winnow_slots_busy')) === 0);
  });
});

test('every route of the server is routed, except for those about one server', () => {
  const document = JSON.parse(readFileSync(new URL('../../openapi.json', import.meta.url), 'utf8')) as {
    readonly paths: Readonly<Record<string, object>>;
  };
  const routed = new Set(routeEntries.map(({ method, url }) => `${method} ${url.replaceAll(/:(\w+)/g, '{$1}')}`));
  const missing = Object.entries(document.paths)
    .flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`))
    .filter((route) => !routed.has(route));
  expect(missing.toSorted()).toEqual(['GET /health', 'GET /metrics', 'GET /slots']);
});

test.each([
  [{ upstreams: [] }, 'upstreams: expected at least one server, each once, got none'],
  [{ upstreams: ['http://a', 'http://a/'] }, 'got one of them twice'],
  [{ upstreams: ['a:8080'] }, 'upstreams: expected a URL such as'],
  [{ upstreams: ['http://a/v1'] }, 'without path and password'],
  [{ upstreams: ['http://:secret@a'] }, 'without path and password, got one with a password'],
  [{ upstreams: ['http://:sec#ret@a'] }, 'without path and password, got one with a password'],
  [{ upstreams: ['http://a'], loadFactor: 0.5 }, 'loadFactor: expected a number from 1, got 0.5'],
  [{ upstreams: ['http://a'], keepAliveMs: 0 }, 'keepAliveMs: expected an integer from 1, got 0'],
  [{ upstreams: ['http://a'], apiKeys: [''] }, 'apiKeys: expected keys, got an empty string'],
  [{ upstreams: ['http://a'], upstream: 'b' }, 'did you mean "upstreams"?'],
])('%j is refused', async (options, expected) => {
  await expect(createRouter(options as RouterOptions)).rejects.toThrow(expected);
});
