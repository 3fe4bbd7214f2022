/** Answers and failures of a small server that sends what each test specifies. */
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ArgumentError } from '@winnow/tensor';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import {
  createFailoverBackend,
  createOpenAiBackend,
  UpstreamError,
  type TextBackend,
  type TextStream,
} from '../src/index.js';

type Answer = (response: ServerResponse) => void;

let server: Server;
let answer: Answer;
let primary: TextBackend;
let numRequests = 0;
let numSecondary = 0;
const closed: Promise<unknown>[] = [];
const responses: Response[] = [];

/** Answers `there`. */
const secondary = createOpenAiBackend({
  baseUrl: 'http://secondary/v1',
  model: 'secondary',
  fetch: async () => {
    numSecondary++;
    return new Response(text('there', 'stop'), { headers: { 'content-type': 'text/event-stream' } });
  },
});

beforeAll(async () => {
  server = createServer((_request, response) => {
    numRequests++;
    closed.push(once(response, 'close'));
    answer(response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  primary = createOpenAiBackend({
    baseUrl: `http://127.0.0.1:${port}/v1/`,
    model: 'primary',
    // collecting a response as garbage would end its connection, too
    fetch: async (...request) => {
      const response = await fetch(...request);
      responses.push(response);
      return response;
    },
  });
});

afterAll(() => server.close());

beforeEach(() => {
  [numRequests, numSecondary, closed.length] = [0, 0, 0];
});

function text(piece: string, reason: string | null = null): string {
  return `data: ${JSON.stringify({ choices: [{ index: 0, text: piece, finish_reason: reason }] })}\n\n`;
}

/** Sends events, then ends the answer, breaks the connection, or leaves it open. */
function events(parts: readonly string[], end: 'end' | 'break' | 'hang' = 'end', type = 'text/event-stream'): Answer {
  return (response) => {
    response.writeHead(200, { 'content-type': type });
    response.write(parts.join(''), () => {
      if (end === 'end') response.end();
      if (end === 'break') response.destroy();
    });
  };
}

function refusal(status: number, code: string | null): Answer {
  return (response) => {
    response.writeHead(status).end(JSON.stringify({ error: { message: 'no', code } }));
  };
}

async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => expect.fail(`expected a failure, got ${JSON.stringify(value)}`),
    (error: unknown) => error,
  );
}

async function readTo(pieces: string[], stream: TextStream): Promise<'ended'> {
  for await (const piece of stream) pieces.push(piece.text);
  return 'ended';
}

test.each<[string, Answer, string]>([
  ['no JSON', events(['data: {"choices"\n\n']), 'expected an object with choices, got {"choices"'],
  ['no choices', events(['data: {"choices":null}\n\n']), 'expected an object with choices'],
  ['text that is none', events(['data: {"choices":[{"text":7}]}\n\n']), 'expected a choice with text'],
  ['a choice that is none', events(['data: {"choices":[7]}\n\n']), 'expected a choice with text'],
  ['a filtered answer', events([text('It', 'content_filter')]), 'expected finish_reason "stop" or "length"'],
  ['no end', events([text('It')]), 'the stream ended within an answer'],
  ['an early [DONE]', events([text('It'), 'data: [DONE]\n\n']), 'the stream ended within an answer'],
  ['an error', events(['data: {"error":{"message":"lost","code":"x"}}\n\n']), '/v1/: lost'],
  ['an endless event', events([`data: ${'7'.repeat(1 << 21)}`], 'hang'), 'the connection failed'],
  ['a page', events(['<p>Log in'], 'hang', 'text/html'), 'expected a stream of events, got text/html'],
  ['a broken connection', events([text('It')], 'break'), 'the connection failed'],
])('%s is an error that says so, and ends the connection', { timeout: 10_000 }, async (_name, given, message) => {
  answer = given;
  const error = await failureOf(primary.generate('Once'));
  expect(error).toBeInstanceOf(UpstreamError);
  expect((error as UpstreamError).message).toContain(message);
  expect((error as UpstreamError).isRequestAtFault).toBe(false);
  await Promise.all(closed);
});

test('pieces, result, finish reason and number of prompt tokens', async () => {
  const usage = 'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n';
  answer = events([': alive\n\n', text('It'), text(''), text(' was', 'length'), usage, 'data: [DONE]\n\n']);
  const stream = primary.generateStream('Once');
  const pieces = [];
  for await (const piece of stream) pieces.push(piece.text);
  expect(pieces).toEqual(['It', ' was']);
  expect(await stream.result()).toEqual({ text: 'It was', finishReason: 'length', numPromptTokens: 3 });
  expect(numRequests).toBe(1);
});

test('a failure stays the result of its stream; a stream that was left early has none', async () => {
  answer = events([text('It'), text(' was')], 'break');
  const failed = primary.generateStream('Once');
  const error = await failureOf(readTo([], failed));
  expect(await failureOf(failed.result())).toBe(error);

  answer = events([text('It')], 'hang');
  const left = primary.generateStream('Once');
  for await (const _piece of left) break;
  await Promise.all(closed); // also the connection that was open
  expect(ArgumentError.isInstance(await failureOf(left.result()))).toBe(true);
});

test.each<[string, Answer, number]>([
  ['a connection that breaks before the first text', events([text('')], 'break'), 1],
  ['a connection that breaks after it', events([text('It')], 'break'), 0],
  ['a wrong key', refusal(401, 'invalid_api_key'), 1],
  ['overload', refusal(503, 'overloaded'), 1],
  ['a context that is too small', refusal(400, 'context_length_exceeded'), 1],
  ['a request that is wrong', refusal(400, 'unknown_parameter'), 0],
])('after %s the next backend is asked only if nothing repeats and it may help', async (_name, given, asked) => {
  answer = given;
  const failovers: unknown[] = [];
  const both = createFailoverBackend({
    backends: [primary, secondary],
    onFailover: ({ from, to, error }) => failovers.push([from, to, UpstreamError.isInstance(error)]),
  });
  const pieces: string[] = [];
  const stream = both.generateStream('Once');
  const end = await readTo(pieces, stream).catch((error: unknown) => error);
  expect(numSecondary).toBe(asked);
  expect(failovers).toEqual(asked === 1 ? [[primary, secondary, true]] : []);
  if (asked === 1) {
    expect(end).toBe('ended');
    expect(pieces).toEqual(['there']);
  } else {
    expect(UpstreamError.isInstance(end)).toBe(true);
    expect(pieces.length).toBeLessThan(2);
  }
});

test('a server that sends no text in time is abandoned', { timeout: 20_000 }, async () => {
  answer = events([text('')], 'hang');
  const { port } = server.address() as AddressInfo;
  const baseUrl = `http://127.0.0.1:${port}/v1`;
  const slow = createOpenAiBackend({ baseUrl, model: 'primary', firstPieceTimeoutMs: 1000 });
  const { text: answered } = await createFailoverBackend({ backends: [slow, secondary] }).generate('Once');
  expect([answered, numRequests]).toEqual(['there', 1]);
  await Promise.all(closed);
});

test('an aborted call fails with the reason of its signal, frees the server and causes no failover', async () => {
  const both = createFailoverBackend({ backends: [primary, secondary] });
  const reason = new Error('enough');
  answer = events([text('It')], 'hang');
  const controller = new AbortController();
  const stream = both.generateStream('Once', { signal: controller.signal });
  const reading = (async () => {
    for await (const _piece of stream) controller.abort(reason);
  })();
  expect(await failureOf(reading)).toBe(reason);
  await Promise.all(closed);

  const early = new AbortController();
  answer = () => early.abort(reason);
  expect(await failureOf(both.generate('Once', { signal: early.signal }))).toBe(reason);
  await Promise.all(closed);
  expect(numRequests).toBe(2);

  answer = refusal(500, null);
  expect(await failureOf(primary.generate('Once', { signal: AbortSignal.abort(reason) }))).toBe(reason);
  expect([numRequests, numSecondary]).toEqual([2, 0]);
});

test('errors of the caller', async () => {
  expect(() => createOpenAiBackend({ baseUrl: 'localhost:8080', model: 'm' })).toThrow(
    'expected an http:// or https://',
  );
  expect(() => createOpenAiBackend({ baseUrl: 'http://user:secret@host/v1', model: 'm' })).toThrow(
    /without a password, got one with a password$/,
  );
  expect(() => createFailoverBackend({ backends: [] })).toThrow('expected at least one backend');
  const both = createFailoverBackend({ backends: [primary, secondary] });
  expect(await failureOf(both.generate('Once', { topk: 1 } as object))).toMatchObject({ name: 'UnknownOptionError' });
  expect(numSecondary).toBe(0);
});
