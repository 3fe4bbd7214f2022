/**
 * Several hundred short requests of all kinds against one server, in a process that can collect garbage
 * (`node --expose-gc`). Prints one JSON line: the heap after some rounds, after more, and after rounds that leak on purpose;
 * and the remaining sessions and blocks.
 */
import { parseArgs } from 'node:util';
import { loadDemoModel, postJson, startServer, demoId, until, slotsOf } from './demo-server.js';
import { endless } from './fake-models.js';

const { values } = parseArgs({ options: { warm: { type: 'string' }, rounds: { type: 'string' } } });
const numPerRound = 120;

const { gc } = globalThis as { gc?: () => void };
if (gc === undefined) throw new Error('needs node --expose-gc');

const model = await loadDemoModel();
const demo = await startServer({
  models: [
    { id: demoId, model },
    { id: 'endless', model: endless(model) },
  ],
});
const url = `${demo.url}/v1/completions`;

async function request(index: number): Promise<void> {
  const body = { model: demoId, prompt: `The ${index % 17} men`, max_tokens: 3, seed: index };
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
  // objects that await finalization are collected in the next turn
  for (let turn = 0; turn < 3; turn++) {
    gc?.();
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

const kept: Uint8Array[] = [];

/** @param keepBytes bytes that every request leaks on purpose, to show that a leak is detected */
async function run(numRounds: number, keepBytes = 0): Promise<number> {
  for (let index = 0; index < numRounds * numPerRound; index += 4) {
    await Promise.all([0, 1, 2, 3].map((offset) => request(index + offset)));
    if (keepBytes > 0) kept.push(new Uint8Array(4 * keepBytes));
  }
  return heapBytes();
}

const warm = await run(Number(values.warm));
const measured = await run(Number(values.rounds));
const leaking = await run(Number(values.rounds), 2048);
const { numSessions, cache } = model.metrics();
await demo.close();
await model.dispose();
process.stdout.write(
  `${JSON.stringify({ warm, measured, leaking, numKept: kept.length, numSessions, numUsedBlocks: cache.numUsedBlocks })}\n`,
);
