/** 64 clients of all APIs beside each other: every request ends as it should, and nothing of it stays in memory. */
import type { Model } from '@winnow/engine';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { demoId, loadDemoModel, slotsOf, startServer, until, type DemoServer } from './demo-server.js';
import { endless } from './fake-models.js';
import { usedHeapBytes } from './heap.js';
import { runClients } from './mixed-clients.js';

const numClients = 64;
/** A round of the full run is a minute, otherwise one request of each client. Rounds are measured in two parts. */
const [numWarmRounds, numRoundsPerPart] = testCoverage === 'full' ? [2, 5] : [3, 1];
const models = { finite: demoId, endless: 'endless' };

let model: Model;
let demo: DemoServer;
beforeAll(async () => {
  model = await loadDemoModel();
  demo = await startServer({
    models: [
      { id: models.finite, model, maxSessions: 2 },
      { id: models.endless, model: endless(model), maxSessions: 2 },
    ],
    maxStoredBytes: 1 << 16, // full after the first round
  });
});
afterAll(async () => {
  await demo?.close();
  await model?.dispose();
});

/** @returns the number of requests */
async function round(seed: number): Promise<number> {
  const endMs = Date.now() + 60_000;
  const isOver = (numRequests: number): boolean => (testCoverage === 'full' ? Date.now() >= endMs : numRequests === 1);
  const { answered, hungUp, refused } = await runClients(demo.url, models, { numClients, seed, isOver });
  await until(async () => (await slotsOf(demo.url)).every(({ state }) => state === 'idle'));
  return answered + hungUp + refused;
}

test(
  `${numClients} clients lose no request and leave no memory behind`,
  { timeout: 1_200_000 },
  async ({ annotate }) => {
    let seed = 0;
    for (let i = 0; i < numWarmRounds; i++) await round(seed++);
    const perRequest: number[] = [];
    for (let part = 0; part < 2; part++) {
      const [before, residentBefore] = [await usedHeapBytes(), process.memoryUsage.rss()];
      let numRequests = 0;
      for (let i = 0; i < numRoundsPerPart; i++) numRequests += await round(seed++);
      expect(numRequests).toBeGreaterThanOrEqual(numClients * numRoundsPerPart);
      const [growth, residentGrowth] = [(await usedHeapBytes()) - before, process.memoryUsage.rss() - residentBefore];
      perRequest.push(growth / numRequests);
      await annotate(
        `${numRequests} requests: heap ${growth} bytes more, resident memory ${residentGrowth} bytes more`,
      );
    }
    const { numSessions, cache } = model.metrics();
    expect({ numSessions, numUsedBlocks: cache.numUsedBlocks }).toEqual({ numSessions: 0, numUsedBlocks: 0 });
    // half of what a request retains that leaks its request and response objects, as in soak.test.ts: a leak shows in both
    // parts, and code that is compiled late in one of them
    expect(Math.min(...perRequest)).toBeLessThan(1024);
  },
);
