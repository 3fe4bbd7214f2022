/** Blobs in a folder and behind HTTP. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { chmodSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it, vi } from 'vitest';
import { ReleasedError } from '@winnow/tensor';
import { blobByteSource, type BlobInfo, type BlobStore } from '../src/index.js';
import { createFolderBlobStore, createHttpBlobStore } from '../src/index.node.js';
import { describeBlobStore } from '../src/testing.js';

const folder = mkdtempSync(join(tmpdir(), 'winnow-blobs-'));
afterAll(() => rmSync(folder, { recursive: true }));

const inFolder = createFolderBlobStore(join(folder, 'store'));
describeBlobStore({ name: 'in a folder', open: async () => ({ store: inFolder }) });

it('leaves no part of a failed write', () => {
  const names = readdirSync(join(folder, 'store'), { recursive: true }).map(String);
  expect(names).toContain('kept');
  expect(names.filter((name) => name.endsWith('.part'))).toEqual([]);
});

it('continues an interrupted write of the same content from the first byte that differs', async () => {
  const content = Array.from({ length: 10 }, (_, part) => new Uint8Array(1000).fill(part));
  async function* failing(): AsyncGenerator<Uint8Array, void, void> {
    yield* content.slice(0, 8);
    throw new Error('the source failed');
  }
  await expect(inFolder.write('left', failing(), { resume: true })).rejects.toThrow('the source failed');
  expect(readdirSync(join(folder, 'store'))).toContain('left.kept.part');
  const changed = [...content.slice(0, 5), new Uint8Array(1000).fill(99), ...content.slice(6)];
  const { resumedBytes, sha256 } = await inFolder.write('left', changed, { resume: true });
  expect(resumedBytes).toBe(5000);
  for await (const _part of inFolder.read('left', { sha256 }));
  expect(readdirSync(join(folder, 'store')).filter((name) => name.endsWith('.part'))).toEqual([]);
});

it('reports why a folder cannot be used', async () => {
  await inFolder.write('file', [Uint8Array.of(1)]);
  const path = join(folder, 'store', 'file');
  const below = createFolderBlobStore(join(path, 'below'));
  expect(await below.stat('a')).toBe(undefined);
  expect(await below.list('')).toEqual([]);
  await expect(firstPart(below, 'a')).rejects.toMatchObject({ name: 'BlobError', reason: 'missing' });
  const refused = below.write('a', []);
  await expect(refused).rejects.toMatchObject({
    name: 'BlobError',
    reason: 'failed',
    source: join(path, 'below', 'a'),
  });
  await expect(inFolder.write('empty/file', [])).resolves.toBeDefined();
  const asFile = inFolder.write('empty', []);
  await expect(asFile).rejects.toMatchObject({ name: 'BlobError', reason: 'failed' });
  await expect(asFile).rejects.toThrow(/^[^:]*empty: is a folder, expected a file$/);
});

it.skipIf(process.getuid?.() === 0)('reports a folder without permission', async () => {
  await inFolder.write('locked/file', [Uint8Array.of(1)]);
  const path = join(folder, 'store', 'locked');
  chmodSync(join(path, 'file'), 0);
  chmodSync(path, 0o500);
  try {
    const denied = { name: 'BlobError', reason: 'denied' };
    await expect(firstPart(inFolder, 'locked/file')).rejects.toMatchObject({ ...denied, source: join(path, 'file') });
    await expect(inFolder.write('locked/other', [])).rejects.toMatchObject({ ...denied, source: join(path, 'other') });
    await expect(inFolder.delete('locked/file')).rejects.toMatchObject({ ...denied, source: join(path, 'file') });
  } finally {
    chmodSync(path, 0o700);
  }
});

it('is read at any position, in one version', async () => {
  await inFolder.write('model', [Uint8Array.from({ length: 1000 }, (_, i) => i & 255)]);
  const source = await blobByteSource(inFolder, 'model');
  expect([source.name, source.sizeBytes]).toEqual([join(folder, 'store', 'model'), 1000]);
  const target = new Uint8Array(3);
  await Promise.all([source.read(0, new Uint8Array(1000)), source.read(300, target)]);
  expect([...target]).toEqual([44, 45, 46]);
  await expect(source.read(998, target)).rejects.toThrow(/range outside of the source/);
  await inFolder.write('model', [new Uint8Array(1000)]);
  await expect(source.read(0, target)).rejects.toMatchObject({ reason: 'changed' });
  await source.close();
  await expect(source.read(0, target)).rejects.toThrow(ReleasedError);
  await expect(blobByteSource(inFolder, 'none')).rejects.toMatchObject({ name: 'BlobError', reason: 'missing' });
});

it('notices that a file has changed', async () => {
  const { sha256 } = await inFolder.write('changed', [new TextEncoder().encode('as it was')]);
  writeFileSync(join(folder, 'store', 'changed'), 'as it is!');
  const read = async (): Promise<void> => {
    for await (const _part of inFolder.read('changed', { sha256 }));
  };
  await expect(read()).rejects.toThrow(/changed: the checksum differs, expected sha256 [0-9a-f]{64}, got [0-9a-f]{64}/);
});

/** A server with ranges that breaks off every third answer. */
async function serveBlobs(blobs: BlobStore): Promise<{ readonly url: string; requests: string[]; close(): void }> {
  let numReads = 0;
  const requests: string[] = [];
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    requests.push(`${request.method} ${request.headers.range ?? ''}`);
    const key = (request.url ?? '/').slice('/blobs/'.length);
    if (request.headers.authorization !== 'Bearer secret') return void response.writeHead(401).end();
    if (request.method === 'PUT') {
      const ifAbsent = request.headers['if-none-match'] === '*';
      try {
        await blobs.write(key, request, { ifAbsent });
      } catch (error) {
        if (!ifAbsent) throw error;
        request.resume();
        return void response.writeHead(412).end();
      }
      return void response.writeHead(201).end();
    }
    if (request.method === 'DELETE') return void response.writeHead((await blobs.delete(key)) ? 204 : 404).end();
    const info = await blobs.stat(key);
    if (info === undefined) return void response.writeHead(404).end();
    const { sizeBytes, version } = info;
    const [, first = '0', last = ''] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
    const [begin, end] = [Number(first), Math.min(last === '' ? Infinity : Number(last) + 1, sizeBytes)];
    const isPart = request.headers.range !== undefined;
    if (isPart && begin >= sizeBytes) {
      return void response.writeHead(416, { 'content-range': `bytes */${sizeBytes}` }).end();
    }
    const range = isPart ? { 'content-range': `bytes ${begin}-${end - 1}/${sizeBytes}` } : {};
    response.writeHead(isPart ? 206 : 200, { 'content-length': end - begin, etag: `"${version}"`, ...range });
    if (request.method === 'HEAD') return void response.end();
    const breaksOff = ++numReads % 3 === 0 && end > begin + 1;
    let left = breaksOff ? Math.floor((end - begin) / 2) : end - begin;
    for await (const part of blobs.read(key, { byteOffset: begin })) {
      response.write(Buffer.from(part.subarray(0, left)));
      left -= Math.min(left, part.byteLength);
      if (left === 0) break;
    }
    if (breaksOff) response.socket?.destroySoon();
    else response.end();
  }
  const server = createServer((request, response) => void answer(request, response).catch(() => response.destroy()));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = (): void => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/blobs`, requests, close };
}

describeBlobStore({
  name: 'behind HTTP',
  async open() {
    const { url, close } = await serveBlobs(createFolderBlobStore(join(folder, 'served')));
    return { store: createHttpBlobStore(url, { headers: { authorization: 'Bearer secret' } }), close };
  },
});

it('reads with one request, and one more after each failure', async () => {
  const { url, requests, close } = await serveBlobs(createFolderBlobStore(join(folder, 'counted')));
  const store = createHttpBlobStore(url, { headers: { authorization: 'Bearer secret' } });
  const { sha256 } = await store.write('page', [new Uint8Array(3_000_000)]);
  const { version } = (await store.stat('page')) as BlobInfo;
  requests.length = 0;
  for await (const _part of store.read('page', { sha256 }));
  for await (const _part of store.read('page', { byteOffset: 10, byteLength: 90, ...(version && { version }) }));
  expect(requests).toEqual(['GET bytes=0-', 'GET bytes=10-99']);
  for await (const _part of store.read('page', { sha256 }));
  expect(requests.slice(2)).toEqual(['GET bytes=0-', 'GET bytes=1500000-2999999']);
  close();
});

it('does not mistake a blob of unknown length for an empty one', async () => {
  const answer = (): Promise<Response> => Promise.resolve(new Response(null, { status: 200 }));
  const store = createHttpBlobStore('http://host/a', { fetch: answer });
  await expect(firstPart(store, 'b')).rejects.toThrow('the answer to GET has no Content-Length');
  await expect(store.stat('b')).rejects.toThrow('http://host/a/b: the answer to HEAD has no Content-Length');
});

const firstPart = (store: BlobStore, key: string): Promise<unknown> => store.read(key)[Symbol.asyncIterator]().next();

it('retries when the server asks for it, and not when it denies access', async () => {
  const answers: Response[] = [
    new Response(null, { status: 425, headers: { 'retry-after': '7' } }),
    new Response('012', { headers: { 'content-length': '3' } }),
    new Response(null, { status: 501 }),
  ];
  let numRequests = 0;
  const send = (): Promise<Response> => Promise.resolve(answers[numRequests++] as Response);
  const store = createHttpBlobStore('http://host', { fetch: send });
  vi.useFakeTimers();
  try {
    const part = firstPart(store, 'a');
    await vi.advanceTimersByTimeAsync(6999);
    expect(numRequests).toBe(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(await part).toMatchObject({ value: Uint8Array.from(Buffer.from('012')) });
    await expect(firstPart(store, 'a')).rejects.toMatchObject({ reason: 'failed' });
    expect(numRequests).toBe(3);
  } finally {
    vi.useRealTimers();
  }
});

it('fails with the reason of its signal', async () => {
  const reason = new Error('no longer needed');
  const send: typeof fetch = (_, init) => Promise.reject(init?.signal?.reason as Error);
  const store = createHttpBlobStore('http://host', { fetch: send });
  await expect(store.stat('a', { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
});

it('rejects an answer with other bytes than requested', async () => {
  const answers: Response[] = [
    new Response('0123', { headers: { 'content-length': '4' } }),
    new Response('0123', { status: 206, headers: { 'content-range': 'bytes 0-3/9' } }),
    new Response('<html>', { headers: { 'content-type': 'text/html', 'content-length': '6' } }),
  ];
  const store = createHttpBlobStore('http://host', { fetch: () => Promise.resolve(answers.shift() as Response) });
  const read = (): Promise<unknown> => store.read('a', { byteOffset: 1, byteLength: 2 })[Symbol.asyncIterator]().next();
  await expect(read()).rejects.toThrow('does not support ranges (status 200, expected 206)');
  await expect(read()).rejects.toThrow('wrong range, expected bytes from 1, got Content-Range bytes 0-3/9');
  await expect(read()).rejects.toThrow('a page of HTML');
});

it('reports what the server answered', async () => {
  const { url, close } = await serveBlobs(createFolderBlobStore(join(folder, 'denied')));
  await expect(createHttpBlobStore(url).stat('a')).rejects.toThrow(`${url}/a: HEAD failed with status 401`);
  close();
  await expect(createHttpBlobStore(url).stat('a')).rejects.toThrow(/HEAD failed: /);
  for (const password of ['secret', 'sec#ret']) {
    const address = `http://user:${password}@host/a`;
    expect(() => createHttpBlobStore(address)).toThrow(/^url: .* got one with a password$/);
  }
});
