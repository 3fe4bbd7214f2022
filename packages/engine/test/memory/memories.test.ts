/** The demo model spread over several small WebAssembly memories. */
import { readFileSync } from 'node:fs';
import { createWasmBackend, type CreateWasmBackendOptions, type WasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import { testCoverage } from '@winnow/test-utils';
import { expect, test } from 'vitest';
import { loadModel } from '../../src/index.js';

interface DemoGolden {
  readonly prompts: readonly { readonly ids: readonly number[]; readonly greedy: readonly number[] }[];
}
const goldens = new URL('../../../demo-model/src/__fixtures__/goldens.json', import.meta.url);
const golden = JSON.parse(readFileSync(goldens, 'utf8')) as DemoGolden;
/** One prompt has 1,674 tokens, computed as the others are. */
const prompts = testCoverage === 'full' ? golden.prompts : golden.prompts.filter(({ ids }) => ids.length < 100);

const numGreedy = testCoverage === 'full' ? 64 : 12;
const mebibyte = 2 ** 20;
/** Each memory holds two or three of the six layers and the programs. */
const limits: CreateWasmBackendOptions = {
  bytesPerMemory: 32 * mebibyte,
  reservedBytes: 29 * mebibyte,
  maxMemoryBytes: 256 * mebibyte,
};

const variants: Readonly<Record<string, CreateWasmBackendOptions>> = {
  '1 thread': { numThreads: 1, maxCallerMs: 0 },
  '2 threads': { numThreads: 2, minSharedWork: 0 },
  'the calling thread': { sharedMemory: false },
};

async function loaded(options: CreateWasmBackendOptions): Promise<{ backend: WasmBackend; ids: number[][] }> {
  const backend = await createWasmBackend({ maxMemoryBytes: 256 * mebibyte, ...options });
  const model = await loadModel(demoModelUrl, { backend, context: 2048 });
  expect(backend.numMemories).toBeGreaterThan(options.bytesPerMemory === undefined ? 0 : 2);
  const ids: number[][] = [];
  for (const { ids: prompt } of prompts) {
    const options = { temperature: 0, maxTokens: numGreedy, ignoreEos: true };
    ids.push([...(await model.generate(prompt, options).result()).tokens]);
  }
  await model.dispose();
  return { backend, ids };
}

test.each(Object.entries(variants))(`greedy continuations of ${numGreedy} tokens: %s`, async (_name, options) => {
  const { backend, ids } = await loaded({ ...options, ...limits });
  expect(ids).toEqual(prompts.map(({ greedy }) => greedy.slice(0, numGreedy)));
  expect([backend.numMemories, backend.usedBytes]).toEqual([1, 0]);
  await backend.dispose();
});

test('log-probabilities are bit-identical in one memory and in several', async () => {
  const [{ ids: prompt }] = prompts as [DemoGolden['prompts'][number]];
  const found: (readonly number[])[] = [];
  for (const options of [{}, limits]) {
    const backend = await createWasmBackend({ numThreads: 2, maxMemoryBytes: 256 * mebibyte, ...options });
    const model = await loadModel(demoModelUrl, { backend, context: 2048 });
    for (const batchSize of [3, 64]) {
      const positions = [0, prompt.length - 1];
      for (const values of await model.logprobs(prompt, { positions, batchSize })) found.push([...values]);
    }
    await model.dispose();
    await backend.dispose();
  }
  expect(found.slice(found.length / 2)).toEqual(found.slice(0, found.length / 2));
});
