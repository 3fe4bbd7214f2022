/** Locations that cannot be opened fail with typed errors that say why. */
import { ArgumentError, IoError } from '@winnow/tensor';
import { expect, test, vi } from 'vitest';
import { host as browserHost } from '../../src/host/host.browser.js';
import { inspectModel, loadModel, type ModelLocation } from '../../src/index.js';
import { createEngineApi } from '../../src/load/engine.js';

/** A server in memory: `files` by path, ranges served. */
function serverOf(files: Readonly<Record<string, Uint8Array<ArrayBuffer>>>, requests: string[] = []): typeof fetch {
  return async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input);
    init?.signal?.throwIfAborted();
    requests.push(`${init?.method ?? 'GET'} ${url.pathname}`);
    const bytes = files[decodeURIComponent(url.pathname)];
    if (bytes === undefined) return new Response(null, { status: 404 });
    if (init?.method === 'HEAD')
      return new Response(null, { status: 200, headers: { 'content-length': String(bytes.length) } });
    const range = new Headers(init?.headers).get('range') ?? '';
    const [, first, last] = /bytes=(\d+)-(\d+)/.exec(range) ?? [];
    const [begin, end] = [Number(first), Math.min(Number(last) + 1, bytes.length)];
    const headers = { 'content-range': `bytes ${begin}-${end - 1}/${bytes.length}` };
    return new Response(bytes.slice(begin, end), { status: 206, headers });
  };
}

const down: typeof fetch = () => Promise.reject(new TypeError('fetch failed'));

test.each([
  ['a number', 5],
  ['nothing', undefined],
  ['null', null],
  ['an empty object', {}],
  ['bytes', new Uint8Array(10)],
])('%s is not a location', async (_name, location) => {
  await expect(loadModel(location as unknown as ModelLocation)).rejects.toThrow(ArgumentError);
});

test.each([['ftp://example.org/model.gguf'], ['data:,x'], ['file://host/share%2Fmodel.gguf']])(
  'URL %s',
  async (url) => {
    await expect(loadModel(new URL(url))).rejects.toThrow(/location: expected a path, or a file: or http\(s\): URL/);
  },
);

test('text that begins like a URL but is not valid', async () => {
  await expect(loadModel('http://')).rejects.toThrow(ArgumentError);
});

test('paths require Node', async () => {
  const { inspectModel: inspectAnywhere } = createEngineApi(browserHost);
  await expect(inspectAnywhere('/nowhere/model.gguf')).rejects.toThrow(
    /location: expected an http\(s\) URL, a Blob or files/,
  );
});

test('a path of the server of a page, as bundlers give the URLs of assets', async () => {
  vi.stubGlobal('location', { origin: 'http://app.test' });
  const urls: string[] = [];
  const answer: typeof fetch = async (input) => {
    urls.push(String(input));
    return new Response(null, { status: 404 });
  };
  const { inspectModel: inspectInPage } = createEngineApi(browserHost);
  const asset = Object.assign(new URL('x:/'), { toString: () => '/_next/media/model.4f2a.safetensors' });
  await expect(inspectInPage(asset, { fetch: answer })).rejects.toThrow(IoError);
  expect(new Set(urls)).toEqual(new Set(['http://app.test/_next/media/model.4f2a.safetensors']));
  await expect(inspectInPage('model.gguf')).rejects.toThrow(ArgumentError);
  vi.unstubAllGlobals();
});

test('a server that does not respond, for a file and for a folder', async () => {
  await expect(inspectModel('http://example.test/x/', { fetch: down })).rejects.toThrow(IoError);
  await expect(inspectModel('http://example.test/x/', { fetch: down })).rejects.toThrow(
    /config\.json: no answer: fetch failed/,
  );
  const refused: typeof fetch = async () => new Response(null, { status: 403 });
  await expect(inspectModel('http://example.test/x/', { fetch: refused })).rejects.toThrow(
    /expected an answer of 200 or 404, got 403/,
  );
});

test('aborted opening throws the reason', async () => {
  const signal = AbortSignal.abort(new Error('no longer wanted'));
  await expect(inspectModel('http://example.test/x/', { fetch: serverOf({}), signal })).rejects.toThrow(
    'no longer wanted',
  );
});

test('file names are escaped in URLs', async () => {
  const encoder = new TextEncoder();
  const requests: string[] = [];
  const index = JSON.stringify({ weight_map: { a: 'part #1?.safetensors' } });
  const files = {
    '/m/config.json': encoder.encode('{"model_type": "llama"}'),
    '/m/model.safetensors.index.json': encoder.encode(index),
  };
  const inspected = inspectModel('http://example.test/m/', { fetch: serverOf(files, requests) });
  await expect(inspected).rejects.toThrow(IoError);
  expect(requests).toContain('GET /m/part%20%231%3F.safetensors');
});
