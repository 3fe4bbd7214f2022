/** Invalid requests get an error with the reason, in OpenAI's format, with the right status. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { ChatTemplate, Model } from '@winnow/engine';
import { BackendError, CapacityError, FormatError, IoError, NonFiniteError, finish } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { demoId, loadDemoModel, postJson, startServer, type DemoServer } from './demo-server.js';
import { failing, scripted } from './fake-models.js';

/** A template that takes more steps than it may. */
const endlessTemplate: ChatTemplate = {
  source: '',
  render: () => finish(endlessTemplate.renderSliced([])),
  *renderSliced() {
    yield;
    throw new FormatError({ source: 'model.gguf', field: 'chat_template', message: 'expected at most 9 steps' });
  },
};

let model: Model;
let demo: DemoServer;
const failures: unknown[] = [];

beforeAll(async () => {
  model = await loadDemoModel();
  const { chatTemplate: _none, ...rest } = model;
  demo = await startServer({
    models: [
      { id: demoId, model },
      { id: 'bare', model: { ...rest, chatTemplate: undefined } },
      { id: 'endless-template', model: { ...rest, chatTemplate: endlessTemplate } },
      {
        id: 'broken',
        model: scripted(model, failing(new BackendError({ backend: 'wasm', message: 'a secret of the machine' }))),
      },
      {
        id: 'breaking',
        model: scripted(
          model,
          failing(new BackendError({ backend: 'wasm', message: 'a secret of the machine' }), ['so far so good']),
        ),
      },
      {
        id: 'not-finite',
        model: scripted(model, failing(new NonFiniteError({ result: 'logits', value: NaN, tensor: 'a.weight' }))),
      },
      {
        id: 'without-storage',
        model: scripted(model, failing(new IoError({ source: 'redis://secret', message: 'no answer within 10 ms' }))),
      },
      {
        id: 'full',
        model: scripted(
          model,
          failing(new CapacityError({ resource: 'kv cache', needed: 2, available: 1, unit: 'blocks' })),
        ),
      },
    ],
    maxBodyBytes: 100_000,
    onError: (error) => failures.push(error),
  });
});

afterAll(async () => {
  await demo?.close();
  await model?.dispose();
});

const chat = { model: demoId, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 2 };
const text = { model: demoId, prompt: 'Hi', max_tokens: 2 };

async function failureOf(response: Response): Promise<Record<string, unknown>> {
  const body = (await response.json()) as { error: Record<string, unknown> };
  expect(Object.keys(body)).toEqual(['error']);
  expect(Object.keys(body.error).sort()).toEqual(['code', 'message', 'param', 'type']);
  return { status: response.status, ...body.error };
}

const post = async (path: string, body: unknown, headers?: Record<string, string>): Promise<Record<string, unknown>> =>
  failureOf(await postJson(`${demo.url}${path}`, body, headers));

test.each<[string, unknown, number, string | null]>([
  ['no JSON', '{"model": ', 400, null],
  ['an empty one', '', 400, null],
  ['a list', [], 400, 'body'],
  ['a prototype', '{"model":"x","__proto__":{"a":1}}', 400, null],
  ['nothing but braces', {}, 400, 'messages'],
  ['no model where there are several', { messages: chat.messages }, 400, 'model'],
  ['no messages', { model: demoId }, 400, 'messages'],
  ['an empty conversation', { ...chat, messages: [] }, 400, 'messages'],
  ['a message that is none', { ...chat, messages: ['Hi'] }, 400, 'messages[0]'],
  ['an unknown role', { ...chat, messages: [{ role: 'boss', content: 'Hi' }] }, 400, 'messages[0].role'],
  ['a message without content', { ...chat, messages: [{ role: 'user' }] }, 400, 'messages[0].content'],
  ['content of numbers', { ...chat, messages: [{ role: 'user', content: 7 }] }, 400, 'messages[0].content'],
  [
    'a picture without pixels',
    { ...chat, messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:,' } }] }] },
    400,
    'messages[0].content[0].image_url.url',
  ],
  ['a number as text', { ...chat, temperature: '1' }, 400, 'temperature'],
  ['a temperature too high', { ...chat, temperature: 3 }, 400, 'temperature'],
  ['a count of nothing', { ...chat, max_tokens: 0 }, 400, 'max_tokens'],
  ['half a token', { ...chat, max_tokens: 1.5 }, 400, 'max_tokens'],
  ['top_logprobs alone', { ...chat, top_logprobs: 2 }, 400, 'top_logprobs'],
  ['an empty stop sequence', { ...chat, stop: '' }, 400, 'stop'],
  ['tool_choice without tools', { ...chat, tool_choice: 'required' }, 400, 'tool_choice'],
  ['an unknown format', { ...chat, response_format: { type: 'xml' } }, 400, 'response_format.type'],
  [
    'a schema that is missing',
    { ...chat, response_format: { type: 'json_schema', json_schema: { name: 'x' } } },
    400,
    'response_format.json_schema.schema',
  ],
  ['no answer', { ...chat, n: 0 }, 400, 'n'],
  ['a bias of no token', { ...chat, logit_bias: { 50256: -100 } }, 400, 'logit_bias'],
  ['a bias of a word', { ...chat, logit_bias: { sea: -100 } }, 400, 'logit_bias'],
  ['a bias too large', { ...chat, logit_bias: { 5: 101 } }, 400, 'logit_bias[5]'],
  ['sound', { ...chat, audio: { voice: 'alloy', format: 'wav' } }, 400, 'audio'],
  ['something made up', { ...chat, made_up: 1 }, 400, 'made_up'],
])('bodies: %s', async (_name, body, status, param) => {
  failures.length = 0;
  const failure = await post('/v1/chat/completions', body);
  expect(failure).toMatchObject({ status, param, type: 'invalid_request_error' });
  if (param !== null && param !== 'body') expect(failure['message']).toContain(param);
  expect(failures).toEqual([]); // nothing to log
});

test('bodies: unknown parameters and unsupported ones of OpenAI have their own codes', async () => {
  expect(await post('/v1/chat/completions', { ...chat, verbosity: 'low' })).toMatchObject({
    code: 'unsupported_parameter',
  });
  expect(await post('/v1/completions', { ...text, best_of: 2 })).toMatchObject({ code: 'unsupported_parameter' });
  expect(await post('/v1/completions', { ...text, made_up: 1 })).toMatchObject({ code: 'unknown_parameter' });
});

test('bodies: null and no-op values count as absent', async () => {
  const body = { ...chat, n: 1, logit_bias: {}, stop: null, temperature: null, modalities: ['text'], store: false };
  expect((await postJson(`${demo.url}/v1/chat/completions`, body)).status).toBe(200);
});

test('bodies: a prompt of the wrong kind', async () => {
  expect(await post('/v1/completions', { ...text, prompt: { a: 1 } })).toMatchObject({
    status: 400,
    param: 'prompt',
  });
  expect(await post('/v1/completions', { ...text, prompt: [] })).toMatchObject({ status: 400, param: 'prompt' });
  expect(await post('/v1/completions', { ...text, prompt: [1e6] })).toMatchObject({ status: 400, param: 'prompt' });
  expect(await post('/v1/completions', { ...text, prompt: ['a', 1] })).toMatchObject({ status: 400 });
});

test('bodies: a content type other than JSON, and a body that is too large', async () => {
  const plain = { 'content-type': 'text/plain' };
  expect(await post('/v1/completions', JSON.stringify(text), plain)).toMatchObject({ status: 415 });
  const large = { ...text, prompt: 'x'.repeat(100_000) };
  expect(await post('/v1/completions', large)).toMatchObject({ status: 413, code: 'request_too_large' });
});

test('bodies: a wrong content length closes the connection', async () => {
  const { port } = new URL(demo.url);
  await new Promise<void>((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'content-length': '1000' };
    const request = httpRequest({ port, host: '127.0.0.1', path: '/v1/completions', method: 'POST', headers });
    request.on('error', () => resolve());
    request.on('response', () => reject(new Error('half a body was answered')));
    request.write('{"model":');
    setTimeout(() => request.destroy(), 20);
  });
  expect((await postJson(`${demo.url}/v1/completions`, text)).status).toBe(200);
});

test('bodies: invalid UTF-8 is rejected, not replaced', async () => {
  const bytes = Buffer.concat([Buffer.from('{"prompt":"'), Buffer.of(0xc3, 0x28), Buffer.from('"}')]);
  const response = await fetch(`${demo.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: bytes,
  });
  expect(await failureOf(response)).toMatchObject({ status: 400, message: expect.stringContaining('UTF-8') });
});

test('bodies: the arguments of a tool call, which are JSON in a string, have limited nesting depth, too', async () => {
  const argumentsOf = (levels: number): string => `{"a":${'['.repeat(levels)}${']'.repeat(levels)}}`;
  const call = (levels: number): object => ({
    ...{ id: '1', type: 'function', function: { name: 'f', arguments: argumentsOf(levels) } },
  });
  const messages = [...chat.messages, { role: 'assistant', content: null, tool_calls: [call(20_000)] }];
  expect(await post('/v1/chat/completions', { ...chat, messages })).toMatchObject({
    ...{ status: 400, message: expect.stringContaining('must be a JSON object of at most 512 levels as a string') },
  });
});

test('bodies: nesting depth is limited; brackets in strings do not count', async () => {
  const levels = (count: number): string => `${'['.repeat(count)}${']'.repeat(count)}`;
  const deep = `{"prompt":"Hi","made_up":${levels(40_000)}}`;
  expect(await post('/v1/completions', deep)).toMatchObject({
    status: 400,
    message: expect.stringContaining('512 levels'),
  });
  expect(await post('/v1/completions', `{"prompt":"Hi","made_up":${levels(511)}}`)).toMatchObject({ param: 'made_up' });
  const quoted = { ...text, prompt: `"\\${'['.repeat(600)}` };
  expect((await postJson(`${demo.url}/v1/completions`, quoted)).status).toBe(200);
});

describe('models', () => {
  test('the name is optional if there is only one', async () => {
    const single = await startServer({ models: [{ id: demoId, model }] });
    const { model: _name, ...unnamed } = text;
    const answer = await postJson(`${single.url}/v1/completions`, unnamed);
    expect(await answer.json()).toMatchObject({ model: demoId, choices: [{ index: 0 }] });
    const none = await failureOf(await postJson(`${single.url}/v1/embeddings`, { input: 'x' }));
    expect(none).toMatchObject({ status: 400, param: 'model', code: 'missing_required_parameter' });
    await single.close();
  });

  test('an unknown one is 404, everywhere', async () => {
    const expected = { status: 404, param: 'model', code: 'model_not_found' };
    expect(await post('/v1/chat/completions', { ...chat, model: 'other' })).toMatchObject(expected);
    expect(await post('/v1/completions', { ...text, model: 'other' })).toMatchObject(expected);
    expect(await post('/v1/embeddings', { model: 'other', input: 'x' })).toMatchObject(expected);
    expect(await failureOf(await fetch(`${demo.url}/v1/models/other`))).toMatchObject(expected);
  });

  test('the error of a model without a chat template names the alternative', async () => {
    const failure = await post('/v1/chat/completions', { ...chat, model: 'bare' });
    expect(failure).toMatchObject({ status: 400, param: 'model', message: expect.stringContaining('/v1/completions') });
    expect((await postJson(`${demo.url}/v1/completions`, { ...text, model: 'bare' })).status).toBe(200);
  });

  test('a generative model does not embed', async () => {
    expect(await post('/v1/embeddings', { model: demoId, input: 'x' })).toMatchObject({ code: 'unsupported_model' });
  });
});

describe('prompts that are too long', () => {
  test.each([false, true])('are rejected before anything is computed (stream: %s)', async (stream) => {
    const long = 'sea '.repeat(4000);
    const expected = { status: 400, code: 'context_length_exceeded' };
    const before = model.metrics().steps.numSteps;
    const messages = [{ role: 'user', content: long }];
    expect(await post('/v1/chat/completions', { ...chat, messages, stream })).toMatchObject({
      ...expected,
      param: 'messages',
    });
    expect(await post('/v1/completions', { ...text, prompt: long, stream })).toMatchObject({
      ...expected,
      param: 'prompt',
    });
    expect(await post('/v1/completions', { ...text, prompt: ['a', long], stream })).toMatchObject({
      ...expected,
      param: 'prompt[1]',
    });
    expect(model.metrics().steps.numSteps).toBe(before);
  });

  test('are rejected by their length before they are tokenized', async () => {
    const encode = vi.spyOn(model.tokenizer, 'encodeSliced');
    try {
      const long = ' '.repeat(30_000);
      const messages = [{ role: 'user', content: `a${long}a` }];
      const expected = { status: 400, code: 'context_length_exceeded' };
      expect(await post('/v1/chat/completions', { ...chat, messages })).toMatchObject(expected);
      expect(await post('/v1/completions', { ...text, prompt: long })).toMatchObject(expected);
      expect(encode).not.toHaveBeenCalled();
    } finally {
      encode.mockRestore();
    }
  });

  test('one token less than the context gives the one token that fits', async () => {
    const prompt = Array.from({ length: model.contextSize - 1 }, () => 65);
    const response = await postJson(`${demo.url}/v1/completions`, { ...text, prompt, max_tokens: 5 });
    const { usage, choices } = (await response.json()) as {
      usage: { completion_tokens: number };
      choices: { finish_reason: string }[];
    };
    expect(usage.completion_tokens).toBe(1);
    expect(choices[0]?.finish_reason).toBe('length');
    const tooLong = await post('/v1/completions', { ...text, prompt: [...prompt, 65] });
    expect(tooLong).toMatchObject({ status: 400, code: 'context_length_exceeded' });
  });
});

describe('failures of the server', () => {
  test.each([false, true])('are 500, and logged without details for the client (stream: %s)', async (stream) => {
    failures.length = 0;
    const failure = await post('/v1/completions', { ...text, model: 'broken', stream });
    expect(failure).toMatchObject({ status: 500, type: 'server_error' });
    expect(failure['message']).not.toContain('secret');
    expect(failures).toMatchObject([{ message: expect.stringContaining('secret') }]);
  });

  test('storage that does not answer is 503, to be tried again; only the log names it', async () => {
    failures.length = 0;
    const response = await postJson(`${demo.url}/v1/completions`, { ...text, model: 'without-storage' });
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1']);
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    expect(error).toMatchObject({ type: 'server_error', code: 'storage_unavailable' });
    expect(error.message).not.toContain('secret');
    expect(failures).toMatchObject([{ message: expect.stringContaining('redis://secret') }]);
  });

  test('a model that is not finite is 500 with the reason; the log names the tensor', async () => {
    failures.length = 0;
    const failure = await post('/v1/completions', { ...text, model: 'not-finite' });
    expect(failure).toMatchObject({ status: 500, type: 'server_error', code: 'model_not_finite' });
    expect(failure['message']).toBe('The model is broken: its logits are not finite');
    expect(failures).toMatchObject([{ message: expect.stringContaining('a.weight') }]);
  });

  test('within a stream are its last event, and throw in the client', async () => {
    failures.length = 0;
    const stream = await demo.client.completions.create({ model: 'breaking', prompt: 'Hi', stream: true });
    const texts: string[] = [];
    const read = async (): Promise<void> => {
      for await (const { choices } of stream) texts.push(choices[0]?.text ?? '');
    };
    await expect(read()).rejects.toMatchObject({ error: { type: 'server_error' } });
    expect(texts).toEqual(['so far so good']);
    expect(failures).toHaveLength(1);
  });

  test('a full cache is 503 with Retry-After', async () => {
    const response = await postJson(`${demo.url}/v1/completions`, { ...text, model: 'full' });
    expect(response.headers.get('retry-after')).toBe('1');
    expect(await failureOf(response)).toMatchObject({ status: 503, code: 'overloaded' });
  });
});

test('unknown paths and methods are 404 in the common error format', async () => {
  expect(await failureOf(await fetch(`${demo.url}/v2/nothing`))).toMatchObject({ status: 404, code: 'unknown_url' });
  expect(await failureOf(await fetch(`${demo.url}/v1/completions`))).toMatchObject({ status: 404 });
});

describe('malformed HTTP', () => {
  /** The complete response to raw bytes. */
  const answerTo = (bytes: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const socket = connect(Number(new URL(demo.url).port), '127.0.0.1', () => socket.write(bytes));
      let text = '';
      socket.setEncoding('utf8').on('data', (data: string) => (text += data));
      socket.on('error', reject).on('close', () => resolve(text));
    });

  // without waiting for the check of late requests, which ends it after 10 to 15 s
  test('a client that never closes its side is disconnected', { timeout: 8_000 }, async () => {
    const accepted = new Promise<Socket>((resolve) => {
      const onSocket = (message: unknown): void => {
        unsubscribe('net.server.socket', onSocket);
        resolve((message as { readonly socket: Socket }).socket);
      };
      subscribe('net.server.socket', onSocket);
    });
    const client = connect({ port: Number(new URL(demo.url).port), host: '127.0.0.1', allowHalfOpen: true });
    client.resume().write('hello\r\n\r\n');
    const socket = await accepted;
    await new Promise((resolve) => socket.once('close', resolve));
    expect(client.writable).toBe(true);
    client.destroy();
  });

  test.each([
    ['no request', 'hello\r\n\r\n', 400],
    ['headers without end', `GET /health HTTP/1.1\r\nhost: localhost\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`, 431],
    ['a path that is not encoded right', 'GET /%zz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n', 400],
  ])('%s', async (_name, bytes, status) => {
    failures.length = 0;
    const [head = '', body = ''] = (await answerTo(bytes)).split('\r\n\r\n');
    expect(head).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(JSON.parse(body)).toMatchObject({ error: { type: 'invalid_request_error', param: null } });
    expect(failures).toEqual([]);
  });
});

test('a chat template over its budget is the fault of the request', async () => {
  const numFailures = failures.length;
  const failure = await post('/v1/chat/completions', { ...chat, model: 'endless-template' });
  expect(failure).toMatchObject({ status: 400, code: 'invalid_chat_template', param: 'messages' });
  expect(failure['message']).toContain('expected at most 9 steps');
  expect(failures.length).toBe(numFailures);
});
