/** Learned sinks, latents, chunks and shared keys with the cache in tiers: results of a session do not depend on where its pages are. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { memorySink, memorySource, type ByteSource } from '@winnow/bytes';
import { writeGguf } from '@winnow/gguf';
import { openGgufFile } from '@winnow/gguf/node';
import { ArgumentError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { loadModel, type LoadOptions, type Model, type ModelLocation } from '../../src/index.js';
import { archPath, maxDifference } from '../support/golden-files.js';
import { inMemory } from '../support/in-memory.js';

const tokens = Array.from({ length: 420 }, (_, index) => (index * 7 + 3) % 310);
const positions = [100, 280, 350, 419];
const greedy = { temperature: 0, maxTokens: 12, ignoreEos: true } as const;

async function load(options: LoadOptions, name = 'gpt-oss', location?: ModelLocation): Promise<Model> {
  const backend = await createWasmBackend({ numThreads: 1 });
  return loadModel(location ?? inMemory(archPath(name, 'model.gguf') as string), {
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

/** Expects the same from a model in memory and one whose cache is in tiers. */
async function expectSame(
  attention: string,
  name: string,
  open: () => Promise<ModelLocation | undefined>,
): Promise<void> {
  const prefixSharing = false;
  await using whole = await load({ attention, kvCache: { prefixSharing } }, name, await open());
  const budget = Math.ceil(5.3 * 64 * whole.plan.kvBytesPerToken);
  const offload = { memory: 2 ** 22 };
  await using tiered = await load({ attention, kvCache: { budget, prefixSharing, offload } }, name, await open());
  const [expected, found] = [await answers(whole), await answers(tiered)];
  expect(tiered.metrics().tiers?.numDemotedTokens).toBeGreaterThan(0);
  expect(found.ids).toEqual(expected.ids);
  // merging states in another order
  for (const [row, values] of found.logprobs.entries()) {
    expect(maxDifference(values, expected.logprobs[row] as Float32Array)).toBeLessThan(1e-4);
  }
}

/** Llama 4 with chunks of this size. */
async function chunkedFile(chunk: number): Promise<ByteSource> {
  const file = await openGgufFile(archPath('llama4', 'model.gguf') as string);
  const tensors = await Promise.all(
    [...file.tensors.values()].map(async (tensor) => {
      const data = new Uint8Array(tensor.sizeBytes);
      await tensor.read(data);
      const { name, shape, dtype } = tensor;
      return { name, shape, dtype, data };
    }),
  );
  const sink = memorySink();
  const size = { type: 'uint32', value: chunk } as const;
  const metadata = [...file.metadata, ['llama4.attention.sliding_window', size] as const];
  await writeGguf(sink, { metadata: new Map(metadata), tensors });
  await file.close();
  return memorySource(sink.toBytes());
}

// offloaded pages are in the chunk of some positions, and before the chunk of others
test('llama4, a chunk larger than the pool: as without tiers', () =>
  expectSame('decode=page-topk:budget=all,page=32', 'llama4', () => chunkedFile(370)));

// a budget of all pages also selects those in the pool, which need the sinks without a state of their own
test.each([
  ['gpt-oss', 'dense'],
  ['gpt-oss', 'decode=page-topk:budget=2,page=32,window=20'],
  ['gpt-oss', 'decode=page-topk:budget=all,page=32'],
  ['deepseek3', 'dense'],
  ['deepseek3', 'decode=page-topk:budget=2,page=32,window=20'],
  ['gemma4', 'dense'],
  ['gemma4', 'decode=page-topk:budget=2,page=32,window=20'],
  ['gemma4', 'decode=page-topk:budget=all,page=32'],
  ['gemma3n', 'dense'],
  ['gemma3n', 'decode=page-topk:budget=2,page=32,window=20'],
  ['qwen3next', 'decode=page-topk:budget=2,page=32,window=20'],
  ['gemma4-moe', 'dense'],
  ['gemma4-moe', 'decode=page-topk:budget=2,page=32,window=20'],
])('%s, %s: as without tiers', (name, attention) => expectSame(attention, name, async () => undefined));

test('eviction by attention mass is refused', async () => {
  const loaded = load({ kvCache: { eviction: 'least-attended' } });
  await expect(loaded).rejects.toThrow(ArgumentError);
  await expect(loaded).rejects.toThrow(/kvCache.eviction: expected oldest/);
});
