/** Blobs in a bucket of a real server on a loopback port, with the faults that networks and stores have. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { BlobStore } from '@winnow/jobs';
import { describeBlobStore } from '@winnow/jobs/testing';
import { s3Failure, sourceArguments, startS3Server, type S3Fault, type S3Server } from '@winnow/test-utils';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createS3BlobStore, type S3BlobStoreOptions } from '../src/index.node.js';

const credentials = { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVER' };
const partBytes = 5 * 2 ** 20;
let server: S3Server;
beforeAll(async () => {
  server = await startS3Server();
});
afterAll(() => server.close());
beforeEach(() => {
  server.requests.length = 0;
  server.next.length = 0;
});

function open(prefix: string, options: S3BlobStoreOptions = {}): BlobStore {
  const url = `s3://${server.bucket}/${prefix}`;
  return createS3BlobStore(url, { endpoint: server.url, credentials, partBytes, ...options });
}

describeBlobStore({ name: 'in S3', open: async () => ({ store: open('suite/') }) });

/** Two and a half parts, in pieces of another size. */
const pieces = Array.from({ length: 13 }, (_, piece) =>
  Uint8Array.from({ length: 1_000_003 }, (_value, i) => (i * 31 + piece * 17) & 255),
);
const size = pieces.length * 1_000_003;

async function sizeOf(store: BlobStore, key: string, sha256: string): Promise<number> {
  let numBytes = 0;
  for await (const part of store.read(key, { sha256 })) numBytes += part.byteLength;
  return numBytes;
}

const partsSent = (): string[] => server.requests.filter((line) => /^PUT .*partNumber/.test(line));
/** Drops the connection after 2 MB of the body. */
const cut: S3Fault = (_request, response, regular) => {
  const write = response.write.bind(response) as (bytes: Uint8Array) => boolean;
  let numBytes = 0;
  response.write = (bytes: Uint8Array): boolean => {
    numBytes += bytes.byteLength;
    const goesOn = write(bytes);
    if (numBytes > 2_000_000) response.socket?.destroySoon();
    return goesOn;
  };
  regular();
};

async function run(argv: readonly string[], environment: Readonly<Record<string, string>>): Promise<object> {
  const child = spawn(process.execPath, argv, {
    env: { ...process.env, ...environment },
    stdio: ['ignore', 'inherit', 'pipe'],
  });
  let stderr = '';
  child.stderr.on('data', (text: Buffer) => (stderr += text.toString()));
  const [, signal] = (await once(child, 'close')) as [number | null, string | null];
  return { signal, stderr };
}

/** Uploads two and a half parts, and dies before the rest. */
const program = `
const { createS3BlobStore } = await import(${JSON.stringify(new URL('../src/index.node.ts', import.meta.url).href)});
const store = createS3BlobStore(process.argv[1], { partBytes: ${partBytes}, concurrency: 1 });
async function* content() {
  for (let piece = 0; piece < 12; piece++) {
    yield Uint8Array.from({ length: 1_000_003 }, (_, i) => (i * 31 + piece * 17) & 255);
  }
  await new Promise((resolve) => setTimeout(resolve, 500)); // the second part arrives
  process.kill(process.pid, 'SIGKILL');
}
await store.write('killed', content(), { resume: true });`;

describe('content in parts', () => {
  it('is sent and read in pieces, and the read continues after lost connections', async () => {
    const store = open('parts');
    const { sha256, sizeBytes } = await store.write('large', pieces);
    expect(sizeBytes).toBe(size);
    expect(partsSent()).toHaveLength(3);
    server.requests.length = 0;
    server.next.push(cut, cut);
    expect(await sizeOf(store, 'large', sha256)).toBe(size);
    expect(server.requests.map((line) => line.slice(0, 4))).toEqual(['GET ', 'GET ', 'GET ']);
  });

  it('is discarded when its checksum is wrong, or reading the content fails', async () => {
    const store = open('discarded');
    await expect(store.write('a', pieces, { sha256: '0'.repeat(64) })).rejects.toMatchObject({ reason: 'checksum' });
    await expect(store.write('a', pieces, { sha256: '0'.repeat(64), resume: true })).rejects.toMatchObject({
      reason: 'checksum',
    });
    async function* failing(): AsyncGenerator<Uint8Array, void, void> {
      yield* pieces;
      throw new Error('the source failed');
    }
    await expect(store.write('a', failing())).rejects.toThrow('the source failed');
    expect(server.uploads()).toEqual([]);
    expect(await store.stat('a')).toBe(undefined);
  });
});

describe('an unfinished upload', () => {
  it('is resumed after the process was killed; parts that differ are sent again', async () => {
    const url = `s3://${server.bucket}/resumed`;
    const argv = [...sourceArguments, '--input-type=module', '-e', program, url];
    const child = await run(argv, server.environment);
    expect(child).toEqual({ signal: 'SIGKILL', stderr: '' });
    expect(server.uploads()).toHaveLength(1);
    const store = open('resumed');
    const changed = [...pieces.slice(0, 8), new Uint8Array(1_000_003), ...pieces.slice(9)];
    server.requests.length = 0;
    const { sha256, resumedBytes } = await store.write('killed', changed, { resume: true });
    expect(resumedBytes).toBe(partBytes);
    expect(partsSent()).toHaveLength(2);
    expect(await sizeOf(store, 'killed', sha256)).toBe(size);
    expect(server.uploads()).toEqual([]);
  });

  it('is the latest one, also when the list of uploads has several pages', async () => {
    const store = open('many');
    async function* failing(): AsyncGenerator<Uint8Array, void, void> {
      yield* pieces.slice(0, 11);
      throw new Error('the source failed');
    }
    await expect(store.write('a', failing(), { resume: true })).rejects.toThrow('the source failed');
    server.leaveUploads('many/a', 25);
    server.requests.length = 0;
    expect((await store.write('a', pieces, { resume: true })).resumedBytes).toBe(2 * partBytes);
    expect(server.requests.filter((line) => /^GET .*[?&]uploads/.test(line))).toHaveLength(3);
    server.expireUploads();
  });

  it('fails with the reason when the store has discarded its parts', async () => {
    const store = open('expired');
    async function* slow(): AsyncGenerator<Uint8Array, void, void> {
      yield* pieces;
      server.expireUploads();
      yield* pieces;
    }
    await expect(store.write('a', slow(), { resume: true })).rejects.toMatchObject({ reason: 'expired' });
    expect((await store.write('a', pieces, { resume: true })).resumedBytes).toBe(0);
  });
});

describe('a service that fails', () => {
  const busy: S3Fault = (request, response) => {
    request.resume();
    s3Failure(response, 503, 'SlowDown');
  };

  it('is retried a limited number of times', async () => {
    const store = open('busy', { maxAttempts: 3 });
    server.next.push(busy, busy);
    await store.write('a', [Uint8Array.of(1, 2, 3)]);
    expect(server.requests).toHaveLength(3);
    server.next.push(busy, busy, busy);
    await expect(store.stat('a')).rejects.toMatchObject({ name: 'BlobError', reason: 'unavailable' });
  });

  it('is not mistaken for one that denies access', async () => {
    server.next.push((request, response) => {
      request.resume();
      s3Failure(response, 400, 'BadDigest');
    });
    await expect(open('a').write('a', [Uint8Array.of(1)])).rejects.toMatchObject({ reason: 'checksum' });
    const stranger = open('a', { credentials: { accessKeyId: 'S3RVER', secretAccessKey: 'wrong' } });
    await expect(stranger.write('a', [Uint8Array.of(1)])).rejects.toMatchObject({ reason: 'denied' });
    const gone = createS3BlobStore('s3://none', { endpoint: 'http://127.0.0.1:1', credentials, maxAttempts: 1 });
    await expect(gone.stat('a')).rejects.toMatchObject({ reason: 'unavailable' });
  });

  it('never mixes two versions in a read', async () => {
    const store = open('versions');
    await store.write('a', pieces.slice(0, 4));
    // between the lost connection and the next one
    const replace: S3Fault = (_request, _response, regular) =>
      void store.write('a', [Uint8Array.of(1)]).then(regular, regular);
    server.next.push(cut, replace);
    const read = async (): Promise<void> => {
      for await (const _part of store.read('a'));
    };
    await expect(read()).rejects.toMatchObject({ reason: 'changed' });
  });
});

it('checks its address and options', () => {
  for (const url of ['http://bucket/a', 's3://', 's3://Bucket', 's3:/bucket']) {
    expect(() => createS3BlobStore(url)).toThrow('s3://bucket or s3://bucket/prefix');
  }
  expect(() => createS3BlobStore('s3://bucket', { partBytes: 1000 })).toThrow('partBytes');
});
