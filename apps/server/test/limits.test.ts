/**
 * Concurrent clients, slow readers, disconnects and queueing: limits hold, and no client affects another.
 */
import { readFileSync } from 'node:fs';
import { get, request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { Model } from '@winnow/engine';
import OpenAI from 'openai';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { ServerOptions, VectorModel } from '../src/index.js';
import { demoId, loadDemoModel, postJson, slotsOf, startServer, until, type DemoServer } from './demo-server.js';
import { aborted, endless, forever, scripted, speechless } from './fake-models.js';

let model: Model;
const open: DemoServer[] = [];

beforeAll(async () => {
  model = await loadDemoModel();
});

afterEach(async () => {
  for (const demo of open.splice(0)) await demo.close();
  expect(model.metrics()).toMatchObject({ numSessions: 0, cache: { numUsedBlocks: 0 } });
});

afterAll(async () => {
  await model?.dispose();
});

async function start(options: ServerOptions): Promise<DemoServer> {
  const demo = await startServer(options);
  open.push(demo);
  return demo;
}

const idle = async ({ url }: DemoServer): Promise<boolean> =>
  (await slotsOf(url)).every(({ state }) => state === 'idle');

const body = { model: demoId, prompt: 'The old man looked at the sea and', temperature: 0, max_tokens: 8 };

/** A request whose answer is not read. */
function askSilently(url: string, asked: object): Promise<{ request: ClientRequest; response: IncomingMessage }> {
  return new Promise((resolve, reject) => {
    const { port } = new URL(url);
    const headers = { 'content-type': 'application/json' };
    const path = '/v1/completions';
    const request = httpRequest({ port, host: '127.0.0.1', path, method: 'POST', headers, agent: false });
    request.on('error', reject);
    request.on('response', (response) => {
      response.pause();
      response.on('error', () => {});
      resolve({ request, response });
    });
    request.end(JSON.stringify(asked));
  });
}

describe('many clients', () => {
  const [numStreams, numTokens] = testCoverage === 'full' ? [24, 12] : [10, 6];

  test(`each of ${numStreams} streams over 4 slots gets the answer of running alone`, async () => {
    const demo = await start({ models: [{ id: demoId, model }] });
    const prompts = Array.from({ length: numStreams }, (_, index) => `Chapter ${index % 6}. The ${index} men went`);
    const alone: string[] = [];
    for (const prompt of prompts)
      alone.push((await model.generate(prompt, { temperature: 0, maxTokens: numTokens }).result()).text);
    const before = model.metrics().steps;
    const together = await Promise.all(
      prompts.map(async (prompt) => {
        let text = '';
        const stream = await demo.client.completions.create({ ...body, prompt, max_tokens: numTokens, stream: true });
        for await (const { choices } of stream) text += choices[0]?.text ?? '';
        return text;
      }),
    );
    expect(together).toEqual(alone);
    // steps were shared
    expect(model.metrics().steps.numSharedSteps).toBeGreaterThan(before.numSharedSteps);
  });

  test('concurrency is limited by the number of slots', async () => {
    const slow = scripted(model, async function* () {
      for (const text of ['a', 'b', 'c']) {
        yield text;
        await new Promise((resolve) => setImmediate(resolve));
      }
    });
    const demo = await start({ models: [{ id: demoId, model: slow, maxSessions: 3 }] });
    const answers = await Promise.all(Array.from({ length: 12 }, () => demo.client.completions.create(body)));
    expect(answers.map(({ choices }) => choices[0]?.text)).toEqual(new Array(12).fill('abc'));
    expect([slow.maxRunning, slow.numRunning]).toEqual([3, 0]);
  });
});

describe('the queue', () => {
  test('a full queue is 429 with Retry-After, and queued requests are served', async () => {
    const held = scripted(model, speechless);
    const demo = await start({ models: [{ id: demoId, model: held, maxSessions: 1 }], maxQueued: 1 });
    const first = await askSilently(demo.url, { ...body, stream: true });
    const second = demo.client.completions.create({ ...body, stream: true });
    const queued = async (): Promise<string | undefined> =>
      /^winnow_requests_queued\S* (\d+)$/m.exec(await (await fetch(`${demo.url}/metrics`)).text())?.[1];
    await until(async () => (await queued()) === '1');
    const refused = await postJson(`${demo.url}/v1/completions`, body);
    expect([refused.status, await refused.json()]).toMatchObject([
      429,
      { error: { code: 'queue_full', type: 'rate_limit_error' } },
    ]);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    await expect(demo.client.completions.create(body)).rejects.toBeInstanceOf(OpenAI.RateLimitError);
    first.request.destroy();
    for await (const { choices } of await second) {
      expect(choices[0]?.text).toBe('well');
      break;
    }
    await until(() => idle(demo));
  });

  test('waiting too long is 503, and a disconnect leaves the queue', async () => {
    const held = scripted(model, speechless);
    const demo = await start({ models: [{ id: demoId, model: held, maxSessions: 1 }], queueTimeoutMs: 50 });
    const first = await askSilently(demo.url, { ...body, stream: true });
    const refused = await postJson(`${demo.url}/v1/completions`, body);
    expect([refused.status, await refused.json()]).toMatchObject([503, { error: { code: 'queue_timeout' } }]);
    expect(refused.headers.get('retry-after')).toMatch(/^\d+$/);
    const controller = new AbortController();
    const waiting = demo.client.completions.create(body, { signal: controller.signal });
    controller.abort();
    await expect(waiting).rejects.toBeInstanceOf(OpenAI.APIUserAbortError);
    first.request.destroy();
    await until(() => idle(demo));
    expect(held.numRunning).toBe(0);
  });
});

describe('time', () => {
  test('a request that takes too long is 504', async () => {
    const demo = await start({ models: [{ id: demoId, model: scripted(model, speechless) }], requestTimeoutMs: 50 });
    const late = await postJson(`${demo.url}/v1/completions`, body);
    expect([late.status, await late.json()]).toMatchObject([504, { error: { code: 'timeout' } }]);
    await until(() => idle(demo));
  });

  test('a stream that takes too long ends with a timeout error', async () => {
    // long enough for the first part on a busy machine
    const demo = await start({ models: [{ id: demoId, model: scripted(model, speechless) }], requestTimeoutMs: 1000 });
    const stream = await demo.client.completions.create({ ...body, stream: true });
    const read = async (): Promise<void> => {
      for await (const _part of stream);
    };
    await expect(read()).rejects.toMatchObject({ error: { code: 'timeout' } });
    await until(() => idle(demo));
  });

  test('a stream sends keep-alive comments until its first token', async () => {
    const silent = scripted(model, async function* ({ signal }) {
      yield await aborted(signal);
    });
    const demo = await start({ models: [{ id: demoId, model: silent }], keepAliveMs: 10 });
    const { request, response } = await askSilently(demo.url, { ...body, stream: true });
    expect(response.statusCode).toBe(200);
    let text = '';
    await new Promise<void>((resolve) => {
      response.on('data', (data: Buffer) => {
        text += data.toString();
        if (text.split('\n\n').length > 3) resolve();
      });
      response.resume();
    });
    expect(text).toMatch(/^(: [a-z ]+\n\n)+$/);
    request.destroy();
    await until(() => idle(demo));
  });
});

/** Maximum number of bytes that a local connection buffers without being read: the kernel buffers at both ends. */
function kernelBufferBytes(): number | undefined {
  try {
    const most = (name: string): number =>
      Number(readFileSync(`/proc/sys/net/ipv4/${name}`, 'utf8').trim().split(/\s+/)[2]);
    return most('tcp_rmem') + most('tcp_wmem');
  } catch {
    return undefined;
  }
}

describe('clients that do not read', () => {
  const bufferBytes = kernelBufferBytes();
  const piece = 'x'.repeat(4000);

  test.skipIf(bufferBytes === undefined)('pause their generation, so that its output fits the buffers', async () => {
    const talker = scripted(model, () => forever(piece));
    const demo = await start({ models: [{ id: demoId, model: talker }] });
    const { request, response } = await askSilently(demo.url, { ...body, stream: true });
    await until(async () => (await slotsOf(demo.url)).some(({ state }) => state === 'blocked'));
    const produced = talker.numTokens;
    // besides the kernel: buffers of the socket, the response and the client (each at most 64 KiB and one piece), and
    // the stream
    const userBytes = 4 * (64 * 1024 + 2 * piece.length);
    expect(produced * piece.length).toBeLessThanOrEqual((bufferBytes as number) + userBytes);
    // others are served meanwhile, and this generation stays paused
    for (let turn = 0; turn < 5; turn++)
      expect((await slotsOf(demo.url)).map(({ state }) => state)).toContain('blocked');
    expect(talker.numTokens).toBe(produced);
    // it continues when it is read again
    response.resume();
    await until(() => talker.numTokens > produced + 100);
    request.destroy();
    await until(() => idle(demo));
    expect(talker.numRunning).toBe(0);
  });

  test('are disconnected after the timeout, and their session is freed', async () => {
    const talker = scripted(model, () => forever(piece));
    const demo = await start({ models: [{ id: demoId, model: talker }], stallTimeoutMs: 50 });
    const { response } = await askSilently(demo.url, { ...body, stream: true });
    await until(() => idle(demo));
    expect(talker.numRunning).toBe(0);
    response.resume();
    await new Promise((resolve) => response.on('close', resolve));
    expect(response.complete).toBe(false);
  });

  test('do not slow down others', async () => {
    const demo = await start({
      models: [
        { id: 'talker', model: scripted(model, () => forever(piece)) },
        { id: demoId, model },
      ],
    });
    const silent = await Promise.all(
      Array.from({ length: 4 }, () => askSilently(demo.url, { ...body, model: 'talker', stream: true })),
    );
    const { text } = await model.generate(body.prompt, { temperature: 0, maxTokens: 8 }).result();
    expect((await demo.client.completions.create(body)).choices[0]?.text).toBe(text);
    for (const { request } of silent) request.destroy();
    await until(() => idle(demo));
  });
});

describe('idle connections', () => {
  const silent = (url: string): Promise<Socket> =>
    new Promise((resolve, reject) => {
      const socket = connect(Number(new URL(url).port), '127.0.0.1', () => resolve(socket));
      socket.on('error', reject);
    });

  test('are closed for new ones, the oldest first', async () => {
    const demo = await start({ models: [{ id: demoId, model }], maxConnections: 3 });
    const sockets: Socket[] = [];
    const closed: number[] = [];
    for (let index = 0; index < 6; index++) {
      const socket = await silent(demo.url);
      socket.on('close', () => closed.push(index));
      socket.resume();
      sockets.push(socket);
    }
    expect((await postJson(`${demo.url}/v1/completions`, body)).status).toBe(200);
    await until(() => closed.length >= 4);
    expect(closed.toSorted()).toEqual([0, 1, 2, 3]);
    for (const socket of sockets) socket.destroy();
  });

  test('cannot displace a running request', async () => {
    const held = scripted(model, speechless);
    const demo = await start({ models: [{ id: demoId, model: held }], maxConnections: 1 });
    const { request, response } = await askSilently(demo.url, { ...body, stream: true });
    const refused = await silent(demo.url);
    await new Promise((resolve) => refused.resume().once('close', resolve));
    expect([response.destroyed, held.numRunning]).toEqual([false, 1]);
    request.destroy();
    await until(() => held.numRunning === 0);
    await until(async () => idle(demo).catch(() => false));
  });
});

describe('clients that disconnect', () => {
  test.each([true, false])('free their sessions at once (stream: %s)', async (stream) => {
    const demo = await start({ models: [{ id: demoId, model: endless(model) }] });
    const controllers = Array.from({ length: 8 }, () => new AbortController());
    const requests = controllers.map(({ signal }) =>
      fetch(`${demo.url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...body, max_tokens: 2000, stream }),
        signal,
      }).then((response) => response.text()),
    );
    // four run, four wait
    await until(async () => (await slotsOf(demo.url)).every(({ generated_tokens: count }) => count > 0));
    for (const controller of controllers) controller.abort();
    for (const request of requests) await expect(request).rejects.toThrow();
    await until(() => idle(demo));
    expect(model.metrics()).toMatchObject({ numSessions: 0, cache: { numUsedBlocks: 0 } });
  });
});

describe('embeddings', () => {
  test('a disconnect stops the work on its texts, and queued requests are served', async () => {
    const started: number[] = [];
    const embedder: VectorModel = {
      name: 'fake',
      backend: 'none',
      contextSize: 8,
      dimensions: 2,
      async embedTexts(texts, { signal } = {}) {
        started.push(texts.length);
        if (texts.length > 1) await aborted(signal);
        return [{ vector: Float32Array.of(0.6, 0.8), numTokens: 3, numChunks: 1, numDroppedTokens: 0 }];
      },
    };
    const demo = await start({ embeddingModels: [{ id: 'fake', model: embedder }] });
    const controller = new AbortController();
    const { signal } = controller;
    const first = demo.client.embeddings.create({ model: 'fake', input: ['a', 'b'] }, { signal });
    await until(async () => (await slotsOf(demo.url))[0]?.state === 'embedding');
    const second = demo.client.embeddings.create({ model: 'fake', input: 'c', encoding_format: 'float' });
    controller.abort();
    await expect(first).rejects.toBeInstanceOf(OpenAI.APIUserAbortError);
    expect((await second).data[0]?.embedding).toEqual(Array.from(Float32Array.of(0.6, 0.8)));
    expect(started).toEqual([2, 1]);
  });
});

describe('shutdown', () => {
  test('running answers are finished, queued and new requests are rejected', async () => {
    let finish = (): void => {};
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const patient = scripted(model, async function* () {
      yield 'first';
      await finished;
      yield ' last';
    });
    const demo = await startServer({ models: [{ id: demoId, model: patient, maxSessions: 1 }] });
    const stream = await demo.client.completions.create({ ...body, stream: true });
    const waiting = postJson(`${demo.url}/v1/completions`, body);
    await until(async () => {
      const metrics = await (await fetch(`${demo.url}/metrics`)).text();
      return /^winnow_requests_queued\S* 1$/m.test(metrics);
    });
    const closed = demo.server.close();
    const refused = await waiting;
    expect([refused.status, await refused.json()]).toMatchObject([503, { error: { code: 'shutting_down' } }]);
    await expect(
      new Promise((resolve, reject) => {
        get(`${demo.url}/health`, { agent: false }, resolve).on('error', reject);
      }),
    ).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    finish();
    let text = '';
    for await (const { choices } of stream) text += choices[0]?.text ?? '';
    expect(text).toBe('first last');
    await closed;
    expect(patient.numRunning).toBe(0);
  });

  test('answers that exceed the grace period are aborted', async () => {
    const held = scripted(model, speechless);
    const demo = await startServer({ models: [{ id: demoId, model: held }] });
    const stream = await demo.client.completions.create({ ...body, stream: true });
    const read = async (): Promise<void> => {
      for await (const _part of stream);
    };
    const ended = expect(read()).rejects.toMatchObject({ error: { code: 'shutting_down' } });
    await demo.server.close({ graceMs: 20 });
    await ended;
    expect(held.numRunning).toBe(0);
  });
});
