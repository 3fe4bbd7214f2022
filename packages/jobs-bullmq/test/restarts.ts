/** Calls while the server is killed and started again, or while its reply is lost. */
import type { JobStore } from '@winnow/jobs';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { expect } from 'vitest';

interface Server {
  kill(): Promise<void>;
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** Checks that the store still has everything after a restart; ends the server. */
export async function checkRestart(server: Server, open: () => Promise<JobStore>): Promise<void> {
  let store: JobStore | undefined;
  try {
    store = await open();
    await store.enqueue(
      'batch',
      ['a', 'b'].map((customId, index) => ({ customId, index, payload: customId })),
    );
    const [job] = await store.claim({ worker: 'worker', leaseMs: 60_000 });
    await server.kill();
    const completing = store.complete(job as never, 'done'); // sent when the server is back
    await server.start();
    expect(await completing).toBe('held');
    expect((await store.list('batch')).map(({ state, result }) => [state, result])).toEqual([
      ['completed', 'done'],
      ['waiting', undefined],
    ]);
  } finally {
    await store?.close();
    await server.stop();
  }
}

/** A server whose next reply after `loseReply` is cut off. @returns its address instead of `url` */
async function losingReplies(url: string): Promise<{ url: string; loseReply(): void; close(): Promise<void> }> {
  const { hostname, port } = new URL(url);
  let isLosing = false;
  const proxy = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    client.on('data', (bytes) => upstream.write(bytes)).on('error', () => {});
    client.on('close', () => upstream.destroy());
    upstream.on('error', () => {}).on('close', () => client.destroy());
    upstream.on('data', (bytes) => {
      if (!isLosing) return void client.write(bytes);
      isLosing = false;
      client.destroy();
    });
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return {
    url: url.replace(`:${port}`, `:${(proxy.address() as AddressInfo).port}`),
    loseReply: () => (isLosing = true),
    async close() {
      proxy.close();
      await once(proxy, 'close');
    },
  };
}

/** Checks that a claim whose reply is lost is sent again, and returns the same jobs. */
export async function checkLostReply(url: string, open: (url: string) => Promise<JobStore>): Promise<void> {
  const proxy = await losingReplies(url);
  const store = await open(proxy.url);
  try {
    const jobs = ['a', 'b', 'c'].map((customId, index) => ({ customId, index, payload: customId }));
    await store.enqueue('batch', jobs);
    proxy.loseReply();
    const claimed = await store.claim({ worker: 'worker', leaseMs: 60_000, limit: 2 });
    expect(claimed.map(({ customId, payload, attempt }) => [customId, payload, attempt])).toEqual([
      ['a', 'a', 1],
      ['b', 'b', 1],
    ]);
    expect((await store.list('batch')).map(({ state, attempts }) => [state, attempts])).toEqual([
      ['running', 1],
      ['running', 1],
      ['waiting', 0],
    ]);
    for (const job of claimed) expect(await store.complete(job, 'done')).toBe('held');
  } finally {
    await store.remove('batch');
    await store.close();
    await proxy.close();
  }
}
