/** Access control: API keys, host names, and CORS. */
import { request as httpRequest } from 'node:http';
import type { Model } from '@winnow/engine';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { demoId, loadDemoModel, postJson, startServer, type DemoServer } from './demo-server.js';

let model: Model;
let open: DemoServer;
let locked: DemoServer;
const key = 'a-key-of-the-test';
const origin = 'https://app.example';

beforeAll(async () => {
  model = await loadDemoModel();
  const models = [{ id: demoId, model }];
  open = await startServer({ models });
  locked = await startServer({ models, apiKeys: ['another', key], corsOrigins: [origin] }, key);
});

afterAll(async () => {
  await open?.close();
  await locked?.close();
  await model?.dispose();
});

const body = { model: demoId, prompt: 'Hi', max_tokens: 1 };

describe('API keys', () => {
  test('a valid key is accepted', async () => {
    expect((await locked.client.completions.create(body)).choices).toHaveLength(1);
  });

  test.each([
    ['none', undefined],
    ['a wrong one', 'Bearer wrong'],
    ['the beginning of a right one', `Bearer ${key.slice(0, -1)}`],
    ['a right one and more', `Bearer ${key}x`],
    ['an empty one', 'Bearer '],
    ['another scheme', `Basic ${key}`],
  ])('%s is 401', async (_name, authorization) => {
    const headers = authorization === undefined ? {} : { authorization };
    for (const path of ['/v1/models', '/slots', '/metrics', '/openapi.json', '/nowhere']) {
      const response = await fetch(`${locked.url}${path}`, { headers });
      expect([path, response.status, response.headers.get('www-authenticate')]).toEqual([path, 401, 'Bearer']);
    }
    const response = await postJson(`${locked.url}/v1/completions`, body, headers);
    expect([response.status, await response.json()]).toMatchObject([401, { error: { code: 'invalid_api_key' } }]);
  });

  test('a single key works like one of several', async () => {
    const server = await startServer({ models: [{ id: demoId, model }], apiKeys: [key] }, key);
    expect((await fetch(`${server.url}/v1/models`)).status).toBe(401);
    expect((await fetch(`${server.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).status).toBe(200);
    await server.close();
  });

  test('the client of OpenAI sees an authentication error', async () => {
    const client = new OpenAI({ baseURL: `${locked.url}/v1`, apiKey: 'wrong', maxRetries: 0 });
    await expect(client.models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
  });

  test('health requires no key', async () => {
    const response = await fetch(`${locked.url}/health`);
    expect([response.status, await response.json()]).toEqual([200, { status: 'ok' }]);
  });
});

describe('cached prefixes', () => {
  const long = { model: demoId, prompt: 'The old man looked at the sea. '.repeat(30), max_tokens: 1 };
  const keys = ['key-a', 'key-b'] as const;

  async function cachedTokens(sharePrefixes?: boolean): Promise<(number | undefined)[]> {
    await using own = await loadDemoModel();
    const server = await startServer({
      models: [{ id: demoId, model: own }],
      apiKeys: keys,
      ...(sharePrefixes === undefined ? {} : { sharePrefixes }),
    });
    const counts: (number | undefined)[] = [];
    for (const asking of [keys[0], keys[0], keys[1], keys[1]]) {
      const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: asking, maxRetries: 0 });
      const { usage } = await client.completions.create(long);
      counts.push(usage?.prompt_tokens_details?.cached_tokens);
    }
    await server.close();
    return counts;
  }

  test('of one key are not those of another', async () => {
    const [first, second = 0, other, otherAgain] = await cachedTokens();
    expect([first, other]).toEqual([0, 0]);
    expect(second).toBeGreaterThan(0);
    expect(otherAgain).toBe(second);
  });

  test('hold a scored prompt, so that its generation does not compute it again', async () => {
    await using own = await loadDemoModel();
    const server = await startServer({ models: [{ id: demoId, model: own }], apiKeys: keys });
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: keys[0], maxRetries: 0 });
    const { usage } = await client.completions.create({ ...long, echo: true, logprobs: 1 });
    expect(usage?.prompt_tokens_details?.cached_tokens).toBeGreaterThan(0);
    await server.close();
  });

  test('are shared by all keys on request', async () => {
    const [first, second = 0, other] = await cachedTokens(true);
    expect([first, other]).toEqual([0, second]);
    expect(second).toBeGreaterThan(0);
  });
});

describe('CORS', () => {
  const preflight = (url: string, from: string): Promise<Response> =>
    fetch(`${url}/v1/completions`, {
      method: 'OPTIONS',
      headers: { origin: from, 'access-control-request-method': 'POST' },
    });

  test('is off by default', async () => {
    const answered = await fetch(`${open.url}/v1/models`, { headers: { origin } });
    expect(answered.headers.get('access-control-allow-origin')).toBe(null);
    const asked = await preflight(open.url, origin);
    expect([asked.status, asked.headers.get('access-control-allow-origin')]).toEqual([404, null]);
  });

  test('allows the named origin, with preflight requests without a key', async () => {
    const asked = await preflight(locked.url, origin);
    expect([asked.status, asked.headers.get('access-control-allow-origin')]).toEqual([204, origin]);
    const stream = await postJson(
      `${locked.url}/v1/completions`,
      { ...body, stream: true },
      { origin, authorization: `Bearer ${key}` },
    );
    expect(stream.headers.get('access-control-allow-origin')).toBe(origin);
    await stream.text();
  });

  test('allows the headers that the client of OpenAI sends from a browser', async () => {
    const sent: string[] = [];
    const client = new OpenAI({
      baseURL: `${locked.url}/v1`,
      apiKey: key,
      maxRetries: 0,
      fetch: (url, init) => {
        sent.push(...new Headers(init?.headers).keys());
        return fetch(url, init);
      },
    });
    await client.models.list();
    expect(sent.some((name) => name.startsWith('x-stainless-'))).toBe(true);
    const asked = await fetch(`${locked.url}/v1/models`, {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'GET',
        'access-control-request-headers': sent.sort().join(','),
      },
    });
    const allowed = (asked.headers.get('access-control-allow-headers') ?? '').toLowerCase().split(/, */);
    expect(allowed).toEqual(expect.arrayContaining(sent));
  });

  test('rejects other origins', async () => {
    const asked = await preflight(locked.url, 'https://evil.example');
    expect(asked.headers.get('access-control-allow-origin')).not.toBe('https://evil.example');
    expect(asked.headers.get('access-control-allow-origin')).not.toBe('*');
  });
});

describe('names', () => {
  const statusFor = (url: string, host: string): Promise<number | undefined> =>
    new Promise((resolve, reject) => {
      const { port } = new URL(url);
      httpRequest({ port, host: '127.0.0.1', path: '/health', headers: { host } }, (response) => {
        response.resume();
        resolve(response.statusCode);
      })
        .on('error', reject)
        .end();
    });

  test.each(['localhost', 'localhost:8080', '127.0.0.1:1', '[::1]:80'])('%s is a local name', async (host) => {
    expect(await statusFor(open.url, host)).toBe(200);
  });

  test.each(['evil.example', 'localhost.evil.example', '127.0.0.1.evil.example:80', '10.0.0.1'])(
    '%s is rejected, against DNS rebinding',
    async (host) => {
      expect(await statusFor(open.url, host)).toBe(403);
    },
  );

  test('with a key every host name is accepted, as behind a proxy', async () => {
    expect(await statusFor(locked.url, 'models.example')).toBe(200);
  });
});

test('every response has an id', async () => {
  const [first, second] = await Promise.all([fetch(`${open.url}/health`), fetch(`${open.url}/nowhere`)]);
  const ids = [first, second].map((response) => response.headers.get('x-request-id'));
  expect(ids[0]).toMatch(/^\w{32}$/);
  expect(ids[1]).not.toBe(ids[0]);
});

test('each key has rates of its own, and an error in the shape of each API', async () => {
  const models = [{ id: demoId, model }];
  const server = await startServer({ models, apiKeys: ['first', 'second'], requestsPerMinute: 2 }, 'first');
  const ask = (path: string, apiKey: string): Promise<Response> =>
    postJson(`${server.url}${path}`, { messages: [{ role: 'user', content: 'Hi' }] }, { 'x-api-key': apiKey });
  const [first, second] = [await ask('/apply-template', 'first'), await ask('/apply-template', 'first')];
  expect([first, second].map(({ headers }) => headers.get('x-ratelimit-remaining-requests'))).toEqual(['1', '0']);
  const refused = [
    await ask('/v1/messages', 'first'),
    await ask('/api/chat', 'first'),
    await ask('/tokenize', 'first'),
  ];
  expect(refused.map(({ status }) => status)).toEqual([429, 429, 429]);
  expect(Number(refused[0]?.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(await Promise.all(refused.map((response) => response.json()))).toMatchObject([
    { type: 'error', error: { type: 'rate_limit_error' } },
    { error: expect.stringContaining('2 requests per minute') as string },
    { error: { code: 'rate_limit_exceeded', type: 'rate_limit_error' } },
  ]);
  expect((await ask('/apply-template', 'second')).status).toBe(200);
  expect((await fetch(`${server.url}/v1/models`, { headers: { 'x-api-key': 'first' } })).status).toBe(200);
  await server.close();
});

test('tokens of an answer count for the rate of the next request', async () => {
  const server = await startServer({ models: [{ id: demoId, model }], tokensPerMinute: 3 });
  await server.client.completions.create({ ...body, max_tokens: 3 });
  await expect(server.client.completions.create(body)).rejects.toBeInstanceOf(OpenAI.RateLimitError);
  await server.close();
});

test.each([{ requestsPerMinute: 0 }, { tokensPerMinute: 1.5 }])('rates are positive integers: %j', async (rates) => {
  await expect(startServer({ models: [{ id: demoId, model }], ...rates })).rejects.toThrow('an integer from 1');
});
