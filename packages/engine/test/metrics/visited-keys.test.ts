/** The keys that layers visit for generated tokens, as the policies define them. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { afterAll, describe, expect, test } from 'vitest';
import { loadModel, type LoadOptions, type VisitedKeysMetrics } from '../../src/index.js';
import { tinyLlama } from '../support/tiny-llama.js';

const backends: Record<string, () => Promise<Backend>> = {
  WebAssembly: () => createWasmBackend({ numThreads: 1 }),
  reference: async () => createReferenceBackend(),
};
const prompt = Array.from({ length: 20 }, (_, index) => 3 + (index % 50));
const numTokens = 6;
/** Each token that is generated but the last one is an input of a step, after the prompt. */
const contextLengths = Array.from({ length: numTokens - 1 }, (_, index) => prompt.length + index + 1);
const numVisible = contextLengths.reduce((sum, length) => sum + length, 0);

async function visited(
  backend: Backend,
  options: LoadOptions,
  numSessions = 1,
): Promise<{ readonly keys: VisitedKeysMetrics | undefined; readonly tokens: readonly number[] }> {
  const model = await loadModel(await tinyLlama(), { context: 64, maxSessions: 2, ...options, backend });
  try {
    const sampling = { temperature: 0, ignoreEos: true, maxTokens: numTokens } as const;
    const run = (): Promise<{ tokens: readonly number[] }> => model.generate(prompt, sampling).result();
    const [{ tokens }] = (await Promise.all(Array.from({ length: numSessions }, run))) as [
      { tokens: readonly number[] },
    ];
    return { keys: model.metrics().visitedKeys, tokens };
  } finally {
    await model.dispose();
  }
}

describe.each(Object.entries(backends))('%s backend', (_name, create) => {
  const open: Backend[] = [];
  const backend = async (): Promise<Backend> => {
    if (open.length === 0) open.push(await create());
    return open[0] as Backend;
  };
  afterAll(async () => {
    for (const one of open) await one.dispose();
  });
  const trace = { visitedKeys: true };
  const layersOf = (numVisitedKeys: readonly number[]): object[] =>
    [0, 1].map((layer) => ({ layer, numVisibleKeys: numVisible, numVisitedKeys }));

  test('dense attention visits all visible keys; nothing is counted without the option', async () => {
    const { keys } = await visited(await backend(), { trace });
    expect(keys).toEqual({ numTokens: numTokens - 1, layers: layersOf([numVisible]) });
    expect((await visited(await backend(), {})).keys).toBeUndefined();
  });

  test.each([
    ['streaming:window=8,sinks=2', [10 * contextLengths.length]],
    ['decode=sparq:rank=4,topk=12', [12 * contextLengths.length]],
    ['decode=page-topk:budget=all,page=16', [numVisible, numVisible]],
  ])('%s', async (attention, numVisited) => {
    const { keys, tokens } = await visited(await backend(), { attention, trace });
    expect(keys).toEqual({ numTokens: numTokens - 1, layers: layersOf(numVisited) });
    // counting changes nothing
    expect(tokens).toEqual((await visited(await backend(), { attention })).tokens);
  });

  test('sequences of one step count apart, each KV head for itself', async () => {
    const attention = 'decode=page-topk:budget=1,page=4,window=4,sinks=1';
    const { keys } = await visited(await backend(), { attention, trace }, 2);
    expect(keys?.numTokens).toBe(2 * (numTokens - 1));
    for (const { numVisibleKeys, numVisitedKeys } of keys?.layers ?? []) {
      expect(numVisibleKeys).toBe(2 * numVisible);
      expect(numVisitedKeys).toHaveLength(2);
      for (const count of numVisitedKeys) {
        // at least the page of the query, at most four pages: one of the sink, two of the window and one that is chosen
        expect(count).toBeGreaterThan(0);
        expect(count).toBeLessThanOrEqual(4 * 4 * keys!.numTokens);
        expect(count).toBeLessThan(2 * numVisible);
      }
    }
  });
});
