/** `winnow route`: its flags and signals, and its process in front of processes of `winnow serve`, one of which is killed. */
import { createRouter, type RouterOptions } from '@winnow/server/router';
import { testCoverage } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { createFakeEngine } from './fake-engine.js';
import { runLoad, type LoadOptions } from './route-load.js';
import { runCli, TestHost } from './run-cli.js';

async function route(argv: readonly string[], env = {}) {
  const created: RouterOptions[] = [];
  const closed: unknown[] = [];
  const router = {
    listen: async () => 'http://127.0.0.1:8080',
    close: async (options: unknown) => void closed.push(options),
    [Symbol.asyncDispose]: async () => {},
  };
  const createRouter = async (options: RouterOptions) => {
    created.push(options);
    return router;
  };
  const host = new TestHost(createFakeEngine().api, { router: { createRouter }, env });
  const run = host.run(['route', '--upstream', 'http://a', ...argv]);
  await host.untilShown('listening on http://127.0.0.1:8080\n');
  created[0]?.onUpstream?.({ upstream: 'http://a', state: 'down', reason: 'refused' });
  host.terminate();
  return { ...(await run), created, closed };
}

test('flags become options, and SIGTERM waits for requests', async () => {
  const flags = ['--upstream', 'http://b', '--batch-upstream', 'http://c', '--api-key', 'k', '--load-factor', '1.5'];
  const more = ['--check-every', '0.5', '--max-body', '1MiB', '--share-prefixes', '--grace', '3'];
  const { code, created, closed, stderr } = await route([...flags, ...more], { WINNOW_API_KEY: 'own' });
  expect(created).toMatchObject([
    {
      upstreams: ['http://a', 'http://b'],
      batchUpstream: 'http://c',
      upstreamApiKey: 'own',
      apiKeys: ['k'],
      loadFactor: 1.5,
      checkIntervalMs: 500,
      maxBodyBytes: 2 ** 20,
      sharePrefixes: true,
    },
  ]);
  expect([code, closed]).toEqual([0, [{ graceMs: 3000 }]]);
  expect(stderr).toContain('winnow: http://a is down: refused\n');
});

test.each([
  [['route'], "required option '--upstream <url>' not specified"],
  [['route', '--upstream', 'http://a', '--load-factor', '0.9'], "--load-factor: expected a number from 1, got '0.9'"],
])('winnow %j exits with 2', async (argv, message) => {
  const { code, stderr } = await runCli(createFakeEngine().api, argv);
  expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
});

describe.skipIf(process.platform !== 'linux')('processes', () => {
  const isFull = testCoverage === 'full';
  const load: LoadOptions = isFull
    ? { numReplicas: 3, numClients: 200, numRounds: 6, maxTokens: 32, maxSessions: 8 }
    : { numReplicas: 2, numClients: 12, numRounds: 2, maxTokens: 24, maxSessions: 3 };

  test(`${load.numClients} streams and a killed replica: only its running streams fail, with an error event`, async () => {
    const { rounds, errors, numBroken, residentBytes, routerCode } = await runLoad(load);
    expect(routerCode).toBe(0);
    const [, killed] = rounds;
    // a replica runs as many streams as it has sessions; those that wait there have no token yet, and go to others
    expect(killed?.error).toBeLessThanOrEqual(load.maxSessions);
    expect(killed?.error).toBeGreaterThan(0);
    const ends = rounds.map((_, round) => ({
      done: load.numClients - (round === 1 ? numBroken : 0),
      error: round === 1 ? numBroken : 0,
      cut: 0,
    }));
    expect(rounds).toEqual(ends);
    const lost =
      /^data: \{"error":\{"message":"The connection .* was lost; .*","type":"server_error","param":null,"code":"upstream_lost"\}\}$/;
    for (const error of errors) expect(error).toMatch(lost);
    if (!isFull) return;
    // A client that leaks keeps at least its request and response, above 10 KiB; the heap may be collected late.
    const [third, last] = [residentBytes[2], residentBytes.at(-1)] as [number[], number[]];
    for (const [index, bytes] of last.entries()) expect(bytes / (third[index] as number)).toBeLessThan(1.15);
  });

  test('a router without a server answers 503, and SIGTERM ends it with 0', async () => {
    const host = new TestHost(createFakeEngine().api, { router: { createRouter } });
    const ended = host.run(['route', '--port', '0', '-q', '--upstream', 'http://127.0.0.1:1']);
    await host.untilShown('listening on ', '\n');
    const health = await fetch(`${host.shown.trim().replace('listening on ', '')}/health`);
    expect([health.status, await health.json()]).toEqual([503, { status: 'no server is up', upstreams: 1, up: 0 }]);
    host.terminate();
    expect((await ended).code).toBe(0);
  });
});
