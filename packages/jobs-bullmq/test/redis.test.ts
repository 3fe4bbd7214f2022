/** The job store in Redis, against a real server. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { ClaimedJob } from '@winnow/jobs';
import { describeJobStore } from '@winnow/jobs/testing';
import { ArgumentError, IoError } from '@winnow/tensor';
import { redisProgram, sourceArguments, startRedisServer, type RedisServer } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openRedisJobStore } from '../src/index.node.js';
import { checkLostReply, checkRestart } from './restarts.js';

/** Jobs start between two readings of the clock of Redis. */
async function checkClock(url: string): Promise<void> {
  const { Redis } = await import('ioredis');
  const redis = new Redis(url);
  const store = await openRedisJobStore(url, { prefix: 'clock' });
  const timeMs = async (): Promise<number> => {
    const [seconds, microseconds] = await redis.time();
    return 1000 * Number(seconds) + Number(microseconds) / 1000;
  };
  await store.enqueue('batch', [{ customId: 'a', index: 0, payload: '' }]);
  const before = await timeMs();
  await store.claim({ worker: 'worker', leaseMs: 60_000 });
  const after = await timeMs();
  const [job] = await store.list('batch');
  expect(job?.startedAtMs).toBeGreaterThanOrEqual(before);
  expect(job?.startedAtMs).toBeLessThanOrEqual(after);
  await store.remove('batch');
  await store.close();
  await redis.quit();
}

/** A position that is none is refused before it shares a call with what other holders do. */
async function checkUnreadable(url: string): Promise<void> {
  const store = await openRedisJobStore(url, { prefix: 'unreadable' });
  const jobs = ['a', 'b'].map((customId, index) => ({ customId, index, payload: '' }));
  await store.enqueue('batch', jobs);
  const [a, b] = (await store.claim({ worker: 'worker', leaseMs: 60_000, limit: 2 })) as [ClaimedJob, ClaimedJob];
  const completing = store.complete(a, 'done');
  const unreadable = store.complete({ ...b, index: undefined as never }, 'done');
  await expect(unreadable).rejects.toSatisfy(ArgumentError.isInstance);
  expect(await completing).toBe('held');
  expect(await store.counts('batch')).toMatchObject({ running: 1, completed: 1 });
  await store.close();
}

describe.skipIf(redisProgram === undefined)('with redis-server', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server?.stop());

  describeJobStore({
    name: 'Redis',
    open: (place, now) => openRedisJobStore(server.url, { prefix: place, now, pollMs: 5 }),
  });

  it('has the clock of the server', () => checkClock(server.url));

  it('claims once when the reply is lost', () =>
    checkLostReply(server.url, (url) => openRedisJobStore(url, { prefix: 'lost' })));

  it('rejects what no script can read, not the changes beside it', () => checkUnreadable(server.url));

  it('leaves nothing behind when a batch is removed', async () => {
    const { Redis } = await import('ioredis');
    const redis = new Redis(server.url);
    const store = await openRedisJobStore(server.url, { prefix: 'left' });
    const jobs = ['a', 'b', 'c', 'd'].map((customId, index) => ({ customId, index, payload: '', queue: customId }));
    await store.enqueue('batch', jobs, { expiresAtMs: 1e14 });
    const [job] = await store.claim({ worker: 'worker', leaseMs: 60_000, queues: ['a'] });
    await store.claim({ worker: 'worker', leaseMs: 60_000, queues: ['b'] });
    await store.fail(job as never, { code: 'oops', message: '' });
    await store.remove('batch');
    expect((await redis.keys('{left}*')).toSorted()).toEqual(['{left}:events', '{left}:last', '{left}:sequence']);
    expect(await redis.xlen('{left}:events')).toBe(0);
    await store.close();
    await redis.quit();
  });

  it('rejects a server that may lose jobs, unless that is allowed', async () => {
    for (const [settings, message] of [
      [['--appendonly', 'no'], /expected 'appendonly yes', got 'no'/],
      [['--appendonly', 'yes', '--maxmemory-policy', 'allkeys-lru'], /'noeviction', got 'allkeys-lru'/],
    ] as const) {
      const volatile = await startRedisServer(settings);
      try {
        await expect(openRedisJobStore(volatile.url)).rejects.toThrow(message);
        const store = await openRedisJobStore(volatile.url, { isVolatileAllowed: true });
        expect(await store.batches()).toEqual([]);
        await store.close();
      } finally {
        await volatile.stop();
      }
    }
  });
});

describe.skipIf(redisProgram === undefined)('a server that ends', () => {
  it('is waited for, and has everything when it is started again', async () => {
    // A busy disk lets Redis put off writing what it answered, which SIGKILL would lose.
    const server = await startRedisServer(['--appendonly', 'yes', '--appendfsync', 'always']);
    await checkRestart(server, () => openRedisJobStore(server.url));
  });

  it('fails calls when it does not come back in time', async () => {
    const server = await startRedisServer();
    const store = await openRedisJobStore(server.url, { maxWaitMs: 200 });
    await server.stop();
    await expect(store.batches()).rejects.toThrow(/no answer within 200 ms/);
    await expect(store.batches()).rejects.toSatisfy(IoError.isInstance);
    await store.close();
    await expect(openRedisJobStore(server.url, { maxWaitMs: 200 })).rejects.toThrow(/no answer within 200 ms/);
  });
});

it('rejects other URLs', async () => {
  for (const url of ['http://localhost', 'jobs.db']) {
    await expect(openRedisJobStore(url)).rejects.toSatisfy(ArgumentError.isInstance);
  }
});

it.skipIf(redisProgram === undefined)('the example of the README', async () => {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const [, example = ''] = /^```ts no-run\n(.*?)^```$/ms.exec(readme) ?? [];
  const [, printed] = /; \/\/ (.*)$/m.exec(example) ?? [];
  const server = await startRedisServer();
  try {
    const program = example
      .replace('redis://127.0.0.1:6379', server.url)
      .replaceAll('@winnow/jobs-bullmq', new URL('../src/index.node.ts', import.meta.url).href)
      .replaceAll("'@winnow/jobs'", `'${new URL('../../jobs/src/index.ts', import.meta.url).href}'`);
    const argv = [...sourceArguments, '--input-type=module-typescript', '-e', program];
    const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'inherit'] });
    let stdout = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    const [code] = (await once(child, 'close')) as [number | null];
    expect([code, stdout]).toEqual([0, `${printed}\n`]);
  } finally {
    await server.stop();
  }
});
