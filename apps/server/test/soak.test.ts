/** Hundreds of short requests of all kinds, half of them rejected or aborted, leak no memory. */
import type { Model } from '@winnow/engine';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { demoId, loadDemoModel, postJson, slotsOf, startServer, until, type DemoServer } from './demo-server.js';
import { endless } from './fake-models.js';
import { usedHeapBytes } from './heap.js';

const [numWarmRounds, numRounds] = testCoverage === 'full' ? [8, 5] : [5, 1];
const numPerRound = 120;

let model: Model;
let demo: DemoServer;
beforeAll(async () => {
  model = await loadDemoModel();
  const models = [
    { id: demoId, model },
    { id: 'endless', model: endless(model) },
  ];
  demo = await startServer({ models });
});
afterAll(async () => {
  await demo?.close();
  await model?.dispose();
});

async function request(index: number): Promise<void> {
  const url = `${demo.url}/v1/completions`;
  const body = { model: demoId, prompt: `The ${index % 17} men`, max_tokens: 2, seed: index };
  if (index % 4 === 0) await (await postJson(url, body)).text();
  else if (index % 4 === 1) await (await postJson(url, { ...body, stream: true })).text();
  else if (index % 4 === 2) await (await postJson(url, { ...body, made_up: 1 })).text();
  else {
    const controller = new AbortController();
    const endlessBody = JSON.stringify({ ...body, model: 'endless', max_tokens: 1000, stream: true });
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(url, { method: 'POST', headers, body: endlessBody, signal: controller.signal });
    await response.body?.getReader().read();
    controller.abort();
  }
}

async function heapBytes(): Promise<number> {
  await until(async () => (await slotsOf(demo.url)).every(({ state }) => state === 'idle'));
  return usedHeapBytes();
}

const kept: Uint8Array[] = [];

/** @param keepBytes bytes that every request leaks on purpose, to show that a leak is detected */
async function run(rounds: number, keepBytes = 0): Promise<number> {
  for (let index = 0; index < rounds * numPerRound; index += 4) {
    await Promise.all([0, 1, 2, 3].map((offset) => request(index + offset)));
    if (keepBytes > 0) kept.push(new Uint8Array(4 * keepBytes));
  }
  return heapBytes();
}

test(`${numPerRound * numRounds} requests leave no session, no block and no heap behind`, async () => {
  const warm = await run(numWarmRounds);
  const measured = await run(numRounds);
  const leaking = await run(numRounds, 2048);
  const { numSessions, cache } = model.metrics();
  expect({ numSessions, numUsedBlocks: cache.numUsedBlocks }).toEqual({ numSessions: 0, numUsedBlocks: 0 });
  expect(kept).toHaveLength((numRounds * numPerRound) / 4);
  // The first rounds fill one-time state: compiled code, connections, the prefix cache. After that a request that
  // leaks retains at least its request and response objects, which take more than 2 KiB with their headers. The bound is
  // half of that per request.
  const bound = numRounds * numPerRound * 1024;
  expect(measured - warm).toBeLessThan(bound);
  expect(leaking - measured).toBeGreaterThan(bound); // requests that leak 2 KiB on purpose
});
