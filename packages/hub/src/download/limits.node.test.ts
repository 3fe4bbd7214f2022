/** Servers that send without end, trickle or fall silent, on real connections. */
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTcpServer, type AddressInfo, type Server as TcpServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { failure, hub, useHubFixture } from '../../test/hub-fixture.js';
import { HubError } from './error.js';
import { createAnswerFetch, createHubFetch } from './fetch.js';

const limits = { silenceMs: 150, answerMs: 500, answerBytes: 10_000 };
/** For tests in which a busy machine must not exceed the limits. */
const patient = { ...limits, silenceMs: 20_000, answerMs: 20_000 };
const open: (Server | TcpServer)[] = [];

afterEach(() => {
  for (const server of open.splice(0)) {
    if ('closeAllConnections' in server) server.closeAllConnections();
    server.close();
  }
});

async function listen(server: Server | TcpServer): Promise<string> {
  open.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function hubFetch(endpoint: string, signal?: AbortSignal, { silenceMs } = limits): typeof fetch {
  const own = { ...limits, silenceMs };
  const options = { repo: 'org/model', endpoint, accessToken: undefined, fetch, signal, offlineHint: '' };
  return createHubFetch({ ...options, limits: own });
}

const answerOf = async (listener: RequestListener, signal?: AbortSignal, own = limits): Promise<unknown> => {
  const endpoint = await listen(createServer(listener));
  const response = await createAnswerFetch(hubFetch(endpoint, signal, own), 'org/model', own)(endpoint);
  return response.json();
};

/** Sends `text` every `ms` until the connection closes. */
const repeat =
  (text: string, ms: number): RequestListener =>
  (_, response) => {
    const timer = setInterval(() => response.write(text), ms);
    response.on('close', () => clearInterval(timer));
  };

describe('answers in JSON', () => {
  it('of a server that keeps to the limits are complete', async () => {
    expect(await answerOf((_, response) => response.end('{"sha":"x"}'), undefined, patient)).toEqual({ sha: 'x' });
  });

  it.each([
    ['never end', repeat('[1,2,3],'.repeat(200), 1), patient, 'server', /longer than 10000 bytes/],
    ['trickle', repeat(' ', 50), { ...patient, answerMs: 500 }, 'server', /takes over 0\.5 s/],
    [
      'fall silent',
      ((_, response) => response.write('{')) as RequestListener,
      limits,
      'network',
      /no bytes for 0\.15 s/,
    ],
    ['do not begin', (() => undefined) as RequestListener, limits, 'network', /no bytes for 0\.15 s/],
  ])('that %s', async (_, listener, own, reason, message) => {
    const error = await answerOf(listener, undefined, own).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(HubError);
    expect(error).toMatchObject({ reason, message: expect.stringMatching(message) });
  });

  it('end at once when the signal aborts', async () => {
    const controller = new AbortController();
    const reason = new Error('enough');
    const silent: RequestListener = (_, response) => {
      response.write('{');
      setTimeout(() => controller.abort(reason), 30);
    };
    await expect(answerOf(silent, controller.signal, patient)).rejects.toBe(reason);
  });
});

describe('headers', () => {
  it.each([
    ['trickle', 20, 'x'],
    ['come fast', 0, `x: ${'y'.repeat(4000)}\r\n`],
  ])('that %s without end', async (_, ms, text) => {
    const server = createTcpServer((socket) => {
      socket.on('error', () => undefined);
      socket.write('HTTP/1.1 200 OK\r\n');
      const timer = setInterval(() => socket.write(text), ms);
      socket.on('close', () => clearInterval(timer));
    });
    const endpoint = await listen(server);
    const start = performance.now();
    const error = await hubFetch(endpoint)(endpoint).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(HubError);
    expect(error).toMatchObject({ reason: 'network' });
    expect(performance.now() - start).toBeLessThan(5000);
  });
});

describe('content', () => {
  it('that falls silent ends with an error, and slow content does not', async () => {
    const silent = await listen(createServer((_, response) => response.write('abc')));
    await expect((await hubFetch(silent)(silent)).text()).rejects.toThrow(/no bytes for 0\.15 s/);
    const slow = await listen(
      createServer((_, response) => {
        for (let part = 1; part <= 8; part++) setTimeout(() => response.write('x'), part * 200);
        setTimeout(() => response.end(), 1800);
      }),
    );
    // in all it takes longer than the limit; a pause five times the intended one still passes on a busy machine
    const request = hubFetch(slow, undefined, { ...limits, silenceMs: 1000 });
    expect(await (await request(slow)).text()).toBe('xxxxxxxx');
  });
});

describe('downloadRepo', () => {
  useHubFixture();

  it.each(['/revision/', '/tree/'])('refuses an endless answer to %s', async (part) => {
    const chunk = ' '.repeat(1024 * 1024);
    hub.intercept = (request, response) => {
      if (!(request.url ?? '').includes(part)) return false;
      const more = (): void => {
        while (!response.destroyed && response.write(chunk));
      };
      response.setHeader('content-type', 'application/json').on('drain', more);
      more();
      return true;
    };
    expect(await failure()).toMatchObject({ reason: 'server', message: expect.stringMatching(/longer than 33554432/) });
  });
});
