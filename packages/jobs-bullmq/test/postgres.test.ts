/** The job store in PostgreSQL, against a real server. */
import type { JobStore } from '@winnow/jobs';
import { describeJobStore } from '@winnow/jobs/testing';
import { ArgumentError, FormatError, IoError } from '@winnow/tensor';
import { postgresProgram, startPostgresServer, type PostgresServer } from '@winnow/test-utils';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openPostgresJobStore } from '../src/postgres.node.js';
import { checkLostReply, checkRestart } from './restarts.js';

const jobsOf = (...ids: readonly string[]) => ids.map((customId, index) => ({ customId, index, payload: customId }));

describe.skipIf(postgresProgram === undefined)('with postgres', () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgresServer();
  });
  afterAll(() => server?.stop());

  describeJobStore({
    name: 'PostgreSQL',
    open: (place, now) => openPostgresJobStore(server.url, { schema: place.replaceAll('-', '_'), now, pollMs: 5 }),
  });

  it('has the clock of the server', async () => {
    const client = new pg.Client(server.url);
    await client.connect();
    const timeMs = async (): Promise<number> => {
      const { rows } = await client.query('SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS ms');
      return (rows[0] as { ms: number }).ms;
    };
    const store = await openPostgresJobStore(server.url, { schema: 'clock' });
    await store.enqueue('batch', jobsOf('a'));
    const before = await timeMs();
    await store.claim({ worker: 'worker', leaseMs: 60_000 });
    const after = await timeMs();
    const [job] = await store.list('batch');
    expect(job?.startedAtMs).toBeGreaterThanOrEqual(before);
    expect(job?.startedAtMs).toBeLessThanOrEqual(after);
    await store.close();
    await client.end();
  });

  it('claims once when the reply is lost', () =>
    checkLostReply(server.url, (url) => openPostgresJobStore(url, { schema: 'lost' })));

  it('gives each job to one of many that claim at once', async () => {
    const stores = await Promise.all(
      Array.from({ length: 4 }, () => openPostgresJobStore(server.url, { schema: 'at_once' })),
    );
    const [first] = stores as [JobStore];
    const ids = Array.from({ length: 60 }, (_, index) => `job-${index}`);
    await first.enqueue('batch', jobsOf(...ids));
    const claims = Array.from({ length: 40 }, (_, i) =>
      (stores[i % stores.length] as JobStore).claim({ worker: `w-${i}`, leaseMs: 60_000, limit: 2 }),
    );
    const claimed = (await Promise.all(claims)).flat().map(({ customId }) => customId);
    expect(claimed.toSorted()).toEqual(ids.toSorted());
    for (const store of stores) await store.close();
  });

  it('rejects a schema that is not a job store, and texts that PostgreSQL cannot store', async () => {
    const client = new pg.Client(server.url);
    await client.connect();
    await client.query('CREATE SCHEMA other');
    await client.end();
    await expect(openPostgresJobStore(server.url, { schema: 'other' })).rejects.toSatisfy(FormatError.isInstance);
    const store = await openPostgresJobStore(server.url);
    await expect(store.enqueue('batch', jobsOf('a\0b'))).rejects.toSatisfy(ArgumentError.isInstance);
    await store.close();
  });
});

describe.skipIf(postgresProgram === undefined)('a server that ends', () => {
  it('is waited for, and has everything when it is started again', async () => {
    const server = await startPostgresServer();
    await checkRestart(server, () => openPostgresJobStore(server.url));
    const late = openPostgresJobStore(server.url, { maxWaitMs: 200 });
    await expect(late).rejects.toThrow(/no answer within 200 ms/);
    await expect(late).rejects.toSatisfy(IoError.isInstance);
  });
});

it('rejects other URLs and schemas', async () => {
  for (const [url, schema] of [
    ['http://localhost', 'a'],
    ['postgres://localhost/a', 'a"b'],
  ] as const) {
    await expect(openPostgresJobStore(url, { schema })).rejects.toSatisfy(ArgumentError.isInstance);
  }
  const refused = openPostgresJobStore('postgress://user:secret@localhost/a?password=secret');
  await expect(refused).rejects.toThrow(/got postgress:\/\/localhost\/a$/);
});
