/** Learned sinks and latents with the KV cache in tiers: the results of a session do not depend on where its pages are. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { ArgumentError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { loadModel, type LoadOptions, type Model } from '../../src/index.js';
import { archPath, maxDifference } from '../support/golden-files.js';
import { inMemory } from '../support/in-memory.js';

const tokens = Array.from({ length: 500 }, (_, index) => (index * 7 + 3) % 310);
const positions = [100, 340, 420, 499];
const greedy = { temperature: 0, maxTokens: 12, ignoreEos: true } as const;

async function load(options: LoadOptions, name = 'gpt-oss'): Promise<Model> {
  const backend = await createWasmBackend({ numThreads: 1 });
  return loadModel(inMemory(archPath(name, 'model.gguf') as string), {
    backend,
    context: 1024,
    maxSessions: 1,
    batchSize: 64,
    ...options,
  });
}

async function answers(model: Model): Promise<{ ids: readonly number[]; logprobs: Float32Array[] }> {
  const { tokens: ids } = await model.generate(tokens, greedy).result();
  return { ids, logprobs: await model.logprobs(tokens, { positions, phase: 'decode' }) };
}

// a budget of all pages also selects those in the pool, which need the sinks without a state of their own
test.each([
  ['gpt-oss', 'dense'],
  ['gpt-oss', 'decode=page-topk:budget=2,page=32,window=20'],
  ['gpt-oss', 'decode=page-topk:budget=all,page=32'],
  ['deepseek3', 'dense'],
  ['deepseek3', 'decode=page-topk:budget=2,page=32,window=20'],
])('%s, %s: as without tiers', async (name, attention) => {
  const prefixSharing = false;
  await using whole = await load({ attention, kvCache: { prefixSharing } }, name);
  const budget = 6 * 64 * whole.plan.kvBytesPerToken;
  const offload = { memory: 2 ** 22 };
  await using tiered = await load({ attention, kvCache: { budget, prefixSharing, offload } }, name);
  const [expected, found] = [await answers(whole), await answers(tiered)];
  expect(tiered.metrics().tiers?.numDemotedTokens).toBeGreaterThan(0);
  expect(found.ids).toEqual(expected.ids);
  // merging states in another order
  for (const [row, values] of found.logprobs.entries()) {
    expect(maxDifference(values, expected.logprobs[row] as Float32Array)).toBeLessThan(1e-4);
  }
});

test('eviction by attention mass is refused', async () => {
  const loaded = load({ kvCache: { eviction: 'least-attended' } });
  await expect(loaded).rejects.toThrow(ArgumentError);
  await expect(loaded).rejects.toThrow(/kvCache.eviction: expected oldest/);
});
