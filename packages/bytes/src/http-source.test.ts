import type { RequestListener } from 'node:http';
import { IoError, ReleasedError } from '@winnow/tensor';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { HtmlPageError, httpSource, readBytes, type ByteSource, type HttpSourceOptions } from './index.js';
import { MAX_WHOLE_BYTES } from './http-source.js';
import { serveBytes, type TestServer } from '@winnow/test-utils';

const content = Uint8Array.from({ length: 5000 }, (_, index) => (index * 31 + (index >> 8)) & 255);
let server: TestServer;

beforeAll(async () => {
  server = await serveBytes({ '/content': content, '/empty': new Uint8Array(0) });
});
afterAll(() => server.close());
beforeEach(() => {
  server.requests.length = 0;
  server.next.length = 0;
});

const open = (path = '/content', options: HttpSourceOptions = {}): Promise<ByteSource> =>
  httpSource(server.url + path, { retryDelayMs: 1, ...options });

const reply =
  (status: number, headers: Record<string, string> = {}, body: Uint8Array | string = ''): RequestListener =>
  (_, response) => {
    response.writeHead(status, headers).end(body);
  };
const partial = (first: number, last: number, headers: Record<string, string> = {}, body = content): RequestListener =>
  reply(206, { 'content-range': `bytes ${first}-${last}/5000`, ...headers }, body.subarray(first, last + 1));
/** Promises the whole range, sends `numBytes` of it and drops the connection. */
const breakAfter =
  (first: number, last: number, numBytes: number): RequestListener =>
  (_, response) => {
    response.writeHead(206, {
      etag: '"version-1"',
      'content-range': `bytes ${first}-${last}/5000`,
      'content-length': last + 1 - first,
    });
    response.write(content.subarray(first, first + numBytes), () => setTimeout(() => response.destroy(), 20));
  };
const message = async (promise: Promise<unknown>): Promise<string> => {
  const error: unknown = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(IoError);
  return (error as IoError).message;
};

describe('opening', () => {
  it('gets the size from a request for one byte', async () => {
    const source = await open();
    expect(source.sizeBytes).toBe(5000);
    expect(source.name).toBe(`${server.url}/content`);
    expect(server.requests).toEqual(['GET /content bytes=0-0']);
  });

  it('uses HEAD when Content-Range has no size', async () => {
    server.next.push(reply(206, { 'content-range': 'bytes 0-0/*' }, 'x'));
    expect((await open()).sizeBytes).toBe(5000);
    expect(server.requests).toEqual(['GET /content bytes=0-0', 'HEAD /content']);
  });

  it('rejects a server that reports no size', async () => {
    server.next.push(reply(206, {}, 'x'), reply(200));
    expect(await message(open())).toMatch(/does not report the size/);
  });

  it('opens an empty file', async () => {
    const source = await open('/empty');
    expect(source.sizeBytes).toBe(0);
    expect(await readBytes(source)).toEqual(new Uint8Array(0));
  });

  it.each([401, 403, 404, 410, 418])('reports HTTP status %d at once', async (status) => {
    server.next.push(reply(status));
    expect(await message(open())).toMatch(new RegExp(`HTTP status ${status}`));
    expect(server.requests).toHaveLength(1);
  });

  it('reports a server that does not respond', async () => {
    const gone = await serveBytes({});
    await gone.close();
    expect(await message(httpSource(`${gone.url}/x`, { retryDelayMs: 0, maxRetries: 2 }))).toMatch(
      /no response: .*gave up after 3 attempts/,
    );
  });
});

describe('servers without ranges, and pages in place of files', () => {
  it('reads a small file whole from a server without range requests', async () => {
    server.next.push(reply(200, {}, content));
    const source = await open();
    expect(await readBytes(source)).toEqual(content);
    expect(await readBytes(source, 100, 7)).toEqual(content.subarray(100, 107));
    expect(server.requests).toHaveLength(1);
    await source.close();
    await expect(readBytes(source)).rejects.toThrow(ReleasedError);
  });

  it('reads it again when the connection is lost on the way', async () => {
    const half: RequestListener = (_, response) => {
      response.writeHead(200, { 'content-length': 5000 });
      response.write(content.subarray(0, 2500), () => setTimeout(() => response.destroy(), 20));
    };
    server.next.push(half, reply(200, {}, content));
    expect(await readBytes(await open())).toEqual(content);
  });

  it('rejects a large file of a server without range requests', async () => {
    const tooLong = MAX_WHOLE_BYTES + 1;
    server.next.push((_, response) => {
      response.writeHead(200, { 'content-length': tooLong });
      response.write('x');
    });
    expect(await message(open())).toMatch(new RegExp(`does not support range requests.* of ${tooLong} bytes`));
    server.next.push((_, response) => {
      response.writeHead(200); // no length
      response.end(new Uint8Array(tooLong));
    });
    expect(await message(open())).toMatch(/does not support range requests/);
  });

  it.each([
    ['by its type', reply(200, { 'content-type': 'text/html; charset=utf-8' }, 'hello')],
    ['by its type, with ranges', reply(206, { 'content-type': 'text/html', 'content-range': 'bytes 0-0/9' }, 'h')],
    ['by its start', reply(200, { 'content-type': 'application/json' }, '\n<!DOCTYPE html><p>')],
    ['by another start', reply(200, {}, '<html lang="en">')],
  ])('rejects a page of HTML %s', async (_, page) => {
    server.next.push(page);
    await expect(open()).rejects.toThrow(HtmlPageError);
    server.next.push(page);
    expect(await message(open())).toMatch(/answered with a page of HTML/);
  });

  it('tells a page from a file when both start with <', async () => {
    const both = await serveBytes({
      '/page': new TextEncoder().encode('<!doctype html><title>app</title>'),
      '/template': new TextEncoder().encode('<|im_start|>{{ content }}'),
    });
    await expect(httpSource(`${both.url}/page`)).rejects.toThrow(HtmlPageError);
    expect((await httpSource(`${both.url}/template`)).sizeBytes).toBe(25);
    await both.close();
  });
});

describe('requests', () => {
  it('follow redirects and send the headers', async () => {
    let authorization: string | undefined;
    server.next.push(
      reply(302, { location: '/content' }),
      (request, response) => {
        authorization = request.headers.authorization;
        partial(0, 0)(request, response);
      },
      reply(307, { location: '/content' }),
    );
    const source = await open('/moved', { headers: { Authorization: 'Bearer secret' } });
    expect(authorization).toBe('Bearer secret');
    expect(await readBytes(source, 10, 20)).toEqual(content.slice(10, 30));
    expect(server.requests).toEqual([
      'GET /moved bytes=0-0',
      'GET /content bytes=0-0',
      'GET /moved bytes=10-29',
      'GET /content bytes=10-29',
    ]);
  });

  it('use the fetch of the options', async () => {
    const urls: string[] = [];
    const source = await open('/content', {
      fetch: (input, init) => {
        urls.push(String(input));
        return fetch(input, init);
      },
    });
    await readBytes(source, 0, 1);
    expect(urls).toEqual([source.name, source.name]);
  });
});

describe('reading', () => {
  it('fetches exactly the requested bytes', async () => {
    const source = await open();
    const before = server.sentBytes;
    expect(await readBytes(source, 100, 300)).toEqual(content.slice(100, 400));
    expect(server.sentBytes - before).toBe(300);
    await readBytes(source, 100, 0);
    expect(server.requests).toEqual(['GET /content bytes=0-0', 'GET /content bytes=100-399']);
  });

  it.each<[string, RequestListener, RegExp]>([
    ['the whole file', reply(200, {}, content), /stopped supporting ranges/],
    ['404', reply(404), /HTTP status 404 \(no such file\)/],
    ['416', reply(416, { 'content-range': 'bytes */10' }), /HTTP status 416 \(range not satisfiable/],
    ['another range', partial(101, 110), /wrong range, expected bytes 100-109, got Content-Range bytes 101-110/],
    ['a shorter range', partial(100, 108), /wrong range/],
    ['no Content-Range', reply(206, {}, content.subarray(100, 110)), /got Content-Range none/],
    ['a malformed Content-Range', partial(100, 109, { 'content-range': 'bytes 100-109' }), /wrong range/],
    ['another size', partial(100, 109, { 'content-range': 'bytes 100-109/4999' }), /changed while .* got 4999/],
    ['another ETag', partial(100, 109, { etag: '"version-2"' }), /changed while .*expected version "version-1"/],
    ['an encoded body', partial(100, 109, { 'content-encoding': 'br' }), /Content-Encoding br|no response/],
    ['too many bytes', reply(206, { 'content-range': 'bytes 100-109/5000' }, content), /too long, expected 10 bytes/],
  ])('rejects %s', async (_, listener, expected) => {
    const source = await open();
    server.next.push(listener);
    expect(await message(readBytes(source, 100, 10))).toMatch(expected);
    expect(server.requests).toHaveLength(2);
  });

  it('accepts a weak ETag in place of the strong one', async () => {
    const source = await open();
    server.next.push(partial(0, 9, { etag: 'W/"version-1"' }));
    expect(await readBytes(source, 0, 10)).toEqual(content.slice(0, 10));
  });
});

describe('retries', () => {
  it('resume where a connection broke', async () => {
    const source = await open();
    server.next.push(breakAfter(0, 4999, 1000), breakAfter(1000, 4999, 500));
    expect(await readBytes(source)).toEqual(content);
    expect(server.requests.slice(1)).toEqual([
      'GET /content bytes=0-4999',
      'GET /content bytes=1000-4999',
      'GET /content bytes=1500-4999',
    ]);
  });

  it('resume after a body that is too short', async () => {
    const source = await open();
    server.next.push(reply(206, { 'content-range': 'bytes 10-29/5000' }, content.subarray(10, 15)));
    expect(await readBytes(source, 10, 20)).toEqual(content.slice(10, 30));
    expect(server.requests.at(-1)).toBe('GET /content bytes=15-29');
  });

  it.each([408, 429, 500, 502, 503, 504])('follow HTTP status %d', async (status) => {
    const source = await open();
    server.next.push(reply(status), reply(status, { 'retry-after': '0' }));
    expect(await readBytes(source, 10, 20)).toEqual(content.slice(10, 30));
    expect(server.requests).toHaveLength(4);
  });

  it('stop after the given number', async () => {
    const source = await open('/content', { maxRetries: 2 });
    server.next.push(...Array.from({ length: 9 }, () => reply(503)));
    expect(await message(readBytes(source, 10, 20))).toMatch(/at byte 10: HTTP status 503, gave up after 3 attempts/);
    expect(server.requests).toHaveLength(4);
  });

  it('stop for a server that never sends the bytes', async () => {
    const source = await open('/content', { maxRetries: 1 });
    server.next.push(...Array.from({ length: 9 }, () => partial(10, 29, {}, new Uint8Array(0))));
    expect(await message(readBytes(source, 10, 20))).toMatch(/too short, expected 20 bytes, got 0, gave up after 2/);
  });
});

describe('aborts', () => {
  it('reject a pending read when the source is closed or the signal aborts', async () => {
    const hang: RequestListener = (_, response) => {
      response.writeHead(206, { 'content-range': 'bytes 0-9/5000', 'content-length': 10 }).write('abc');
    };
    const source = await open();
    server.next.push(hang, hang);
    const stop = new AbortController();
    const reading = source.read(0, new Uint8Array(10), { signal: stop.signal });
    const other = source.read(0, new Uint8Array(10));
    setTimeout(() => stop.abort(new Error('stop')), 20);
    await expect(reading).rejects.toThrow('stop');
    await source.close();
    await expect(other).rejects.toThrow(ReleasedError);
  });

  it('end the wait between attempts when the signal of the source aborts', async () => {
    const stop = new AbortController();
    const source = await open('/content', { signal: stop.signal, retryDelayMs: 100_000 });
    server.next.push((_, response) => {
      response.writeHead(503).end();
      setTimeout(() => stop.abort(new Error('stop')), 20);
    });
    await expect(readBytes(source, 0, 1)).rejects.toThrow('stop');
  });
});
