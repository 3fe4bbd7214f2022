/** Learned sinks with the KV cache in tiers: the results of a session do not depend on where its pages are. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { ArgumentError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { loadModel, type LoadOptions, type Model } from '../../src/index.js';
import { archPath, maxDifference } from '../support/golden-files.js';
import { inMemory } from '../support/in-memory.js';

const path = archPath('gpt-oss', 'model.gguf') as string;
const tokens = Array.from({ length: 500 }, (_, index) => (index * 7 + 3) % 310);
const positions = [100, 340, 420, 499];
const greedy = { temperature: 0, maxTokens: 12, ignoreEos: true } as const;

async function load(options: LoadOptions): Promise<Model> {
  const backend = await createWasmBackend({ numThreads: 1 });
  return loadModel(inMemory(path), { backend, context: 1024, maxSessions: 1, batchSize: 64, ...options });
}

async function answers(model: Model): Promise<{ ids: readonly number[]; logprobs: Float32Array[] }> {
  const { tokens: ids } = await model.generate(tokens, greedy).result();
  return { ids, logprobs: await model.logprobs(tokens, { positions, phase: 'decode' }) };
}

// a budget of all pages also selects those in the pool, which need the sinks without a state of their own
test.each(['dense', 'decode=page-topk:budget=2,page=32,window=20', 'decode=page-topk:budget=all,page=32'])(
  '%s: as without tiers',
  async (attention) => {
    const prefixSharing = false;
    await using whole = await load({ attention, kvCache: { prefixSharing } });
    const budget = 6 * 64 * whole.plan.kvBytesPerToken;
    await using tiered = await load({ attention, kvCache: { budget, prefixSharing, offload: { memory: 2 ** 22 } } });
    const [expected, found] = [await answers(whole), await answers(tiered)];
    expect(tiered.metrics().tiers?.numDemotedTokens).toBeGreaterThan(0);
    expect(found.ids).toEqual(expected.ids);
    // merging states in another order
    for (const [row, values] of found.logprobs.entries()) {
      expect(maxDifference(values, expected.logprobs[row] as Float32Array)).toBeLessThan(1e-4);
    }
  },
);

test('eviction by attention mass is refused', async () => {
  const loaded = load({ kvCache: { eviction: 'least-attended' } });
  await expect(loaded).rejects.toThrow(ArgumentError);
  await expect(loaded).rejects.toThrow(/kvCache.eviction: expected oldest/);
});
