/** Blobs in a folder and behind HTTP. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import type { BlobStore } from '../src/index.js';
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

it('goes on with what another write of the same content has left, from the first byte that differs', async () => {
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

it('notices that a file has changed', async () => {
  const { sha256 } = await inFolder.write('changed', [new TextEncoder().encode('as it was')]);
  writeFileSync(join(folder, 'store', 'changed'), 'as it is!');
  const read = async (): Promise<void> => {
    for await (const _part of inFolder.read('changed', { sha256 }));
  };
  await expect(read()).rejects.toThrow(/changed: the checksum differs, expected sha256 [0-9a-f]{64}, got [0-9a-f]{64}/);
});

/** A server with ranges, of which every third answer breaks off. */
async function serveBlobs(blobs: BlobStore): Promise<{ readonly url: string; close(): void }> {
  let numReads = 0;
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
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
    const [, first = 0, last = info.sizeBytes - 1] =
      /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '')?.map(Number) ?? [];
    const end = Math.min(last, info.sizeBytes - 1);
    const range = { 'content-range': `bytes ${first}-${end}/${info.sizeBytes}`, etag: '"1"' };
    const isPart = request.headers.range !== undefined;
    response.writeHead(isPart ? 206 : 200, { 'content-length': end + 1 - first, ...(isPart ? range : {}) });
    if (request.method === 'HEAD') return void response.end();
    const breaksOff = ++numReads % 3 === 0 && end > first;
    let left = breaksOff ? Math.floor((end + 1 - first) / 2) : end + 1 - first;
    for await (const part of blobs.read(key, { byteOffset: first })) {
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
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/blobs`, close };
}

describeBlobStore({
  name: 'behind HTTP',
  async open() {
    const { url, close } = await serveBlobs(createFolderBlobStore(join(folder, 'served')));
    return { store: createHttpBlobStore(url, { headers: { authorization: 'Bearer secret' } }), close };
  },
});

it('takes no blob for empty whose length the server does not say', async () => {
  const answer = (): Promise<Response> => Promise.resolve(new Response(null, { status: 200 }));
  const store = createHttpBlobStore('http://host/a', { fetch: answer });
  await expect(store.read('b')[Symbol.asyncIterator]().next()).rejects.toThrow(
    'http://host/a/b: the answer to HEAD has no Content-Length',
  );
});

it('says what the server answered', async () => {
  const { url, close } = await serveBlobs(createFolderBlobStore(join(folder, 'denied')));
  await expect(createHttpBlobStore(url).stat('a')).rejects.toThrow(`${url}/a: HEAD failed with status 401`);
  close();
  await expect(createHttpBlobStore(url).stat('a')).rejects.toThrow(/HEAD failed: /);
  for (const password of ['secret', 'sec#ret']) {
    const address = `http://user:${password}@host/a`;
    expect(() => createHttpBlobStore(address)).toThrow(/^url: .* got one with a password$/);
  }
});
