/** The KV cache in tiers: the results of a session do not depend on where its pages are. */
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createWasmBackend } from '@winnow/backend-wasm';
import { memorySink, memorySource } from '@winnow/bytes';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import type { DType } from '@winnow/tensor';
import { sampled, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type LoadOptions, type Model } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { tinyLlama } from '../support/tiny-llama.js';

const greedy = { temperature: 0, ignoreEos: true } as const;
const ids = (length: number, step = 7): number[] => Array.from({ length }, (_, index) => (index * step + 3) % 60);

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'winnow-tiers-'));
});
afterAll(() => rm(folder, { recursive: true }));

const backends: Readonly<Record<string, () => Backend | Promise<Backend>>> = {
  reference: () => createReferenceBackend(),
  wasm: () => createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 27 }),
  'two threads': () => createWasmBackend({ numThreads: 2, minSharedWork: 0, maxMemoryBytes: 2 ** 27 }),
};

/** Bytes of a block of the tiny model: 2 layers, 2 heads of 32, 64 slots, and their positions. */
const blockBytes = (dtypeBytes: number): number => 64 * (2 * 2 * 2 * 32 * dtypeBytes + 4);
const bytesPer: Readonly<Record<string, number>> = { f32: 4, f16: 2, q8_0: 34 / 32, q4_0: 18 / 32 };

async function load(name: string, options: LoadOptions): Promise<{ model: Model; close: () => Promise<void> }> {
  const backend = await backends[name]!();
  const model = await loadModel(await tinyLlama(), { context: 1024, maxSessions: 1, ...options, backend });
  return {
    model,
    async close() {
      await model.dispose();
      await backend.dispose();
    },
  };
}

// for the engine the reference is like WebAssembly: both have host-visible memory
describe.each(sampled(['wasm', 'reference'], 2))('on %s', (name) => {
  test.each(['f32', 'f16', 'q8_0', 'q4_0'] as const)('%s: logits and tokens as without tiers', async (dtype: DType) => {
    const tokens = ids(600);
    const positions = [100, 480, 599];
    const whole = await load(name, { kvCache: { dtype } });
    const expected = await whole.model.logprobs(tokens, { positions });
    const { tokens: expectedTokens } = await whole.model.generate(tokens, { ...greedy, maxTokens: 20 }).result();
    await whole.close();
    const block = blockBytes(bytesPer[dtype] as number);
    const kv = { budget: 6 * block, offload: { memory: 2 * block, folder } };
    const { model, close } = await load(name, { kvCache: { dtype, ...kv } });
    const found = await model.logprobs(tokens, { positions });
    for (const [row, values] of found.entries()) {
      let worst = 0;
      for (let i = 0; i < values.length; i++) worst = Math.max(worst, Math.abs(values[i]! - expected[row]![i]!));
      expect(worst).toBeLessThan(1e-4);
    }
    const result = await model.generate(tokens, { ...greedy, maxTokens: 20 }).result();
    expect(result.tokens).toEqual(expectedTokens);
    const { tiers, cache } = model.metrics();
    expect(cache.numBlocks).toBe(6);
    expect(tiers).toMatchObject({ numStoredTokens: 0, warmBytes: 0, coldBytes: 0 });
    expect(tiers?.numDemotedTokens).toBeGreaterThan(500);
    expect(tiers?.bytesWritten).toBeGreaterThan(0);
    expect(tiers?.numMisses).toBeGreaterThan(0);
    expect(tiers?.numHits).toBeGreaterThan(0);
    await close();
    expect(await readdir(folder)).toEqual([]);
  });
});

const numShared = testCoverage === 'full' ? 80 : 24;

/** Sessions are managed by the host in the same way on every backend. */
const oneBackend = sampled(['wasm', 'reference'], 2);

describe.each(sampled(['two threads', 'wasm', 'reference'], 3))('sessions on %s', (name) => {
  test('concurrent sessions, some with a common prefix, some truncated', async () => {
    const prompts = [ids(400), [...ids(300), 5, 6, 7], ids(350, 11), ids(70, 13)];
    const whole = await load(name, { maxSessions: 5, kvCache: { capacity: 4096 } });
    const expected = await Promise.all(
      prompts.map((prompt) => whole.model.generate(prompt, { ...greedy, maxTokens: numShared }).result()),
    );
    await whole.close();
    const { model, close } = await load(name, {
      maxSessions: 5,
      kvCache: { budget: 16 * blockBytes(4), offload: { memory: 2 ** 22 } },
    });
    const sessions = prompts.map(() => model.createSession());
    const generateAll = async (): Promise<void> => {
      const found = await Promise.all(
        sessions.map((session, index) =>
          session.generate(prompts[index]!, { ...greedy, maxTokens: numShared }).result(),
        ),
      );
      expect(found.map(({ tokens }) => tokens)).toEqual(expected.map(({ tokens }) => tokens));
    };
    await generateAll();
    expect(model.metrics().steps.numSharedSteps).toBeGreaterThan(0);
    expect(model.metrics().tiers?.numStoredTokens).toBeGreaterThan(200);
    // cuts into a page that is not in the pool
    for (const session of sessions) session.truncate(100);
    await generateAll();
    // two sessions that share pages diverge
    const [first] = sessions;
    using fork = first!.fork();
    first!.truncate(330);
    const rest = await fork
      .generate([...ids(400), ...expected[0]!.tokens.slice(0, -1)], { ...greedy, maxTokens: 1 })
      .result();
    expect(rest.tokens).toEqual(expected[0]!.tokens.slice(-1));
    expect(rest.cachedTokens).toBe(398 + numShared);
    await generateAll();
    for (const session of sessions) session.dispose();
    fork.dispose();
    expect(model.metrics().tiers).toMatchObject({ numStoredTokens: 0, warmBytes: 0 });
    await close();
  });
});

const [numSaved, numBeyond] = testCoverage === 'full' ? [60, 500] : [24, 150];

describe.each(oneBackend)('saved sessions and full contexts on %s', (name) => {
  test('saved and restored, with and without tiers', async () => {
    const kv = { budget: 8 * blockBytes(2), offload: { memory: 3 * blockBytes(2), folder } };
    const tiered = await load(name, { kvCache: { dtype: 'f16', ...kv }, maxSessions: 2 });
    const plain = await load(name, { kvCache: { dtype: 'f16', capacity: 2048 }, maxSessions: 2 });
    const expected = await plain.model.generate(ids(500), { ...greedy, maxTokens: 2 * numSaved }).result();
    for (const [from, to] of [
      [tiered, plain],
      [plain, tiered],
      [tiered, tiered],
    ] as const) {
      using session = from.model.createSession();
      await session.generate(ids(500), { ...greedy, maxTokens: numSaved }).result();
      const sink = memorySink();
      await session.save(sink);
      using restored = await to.model.restoreSession(memorySource(sink.toBytes()));
      const { tokens, cachedTokens } = await restored.resume({ maxTokens: numSaved }).result();
      expect([cachedTokens, tokens]).toEqual([499 + numSaved, expected.tokens.slice(numSaved)]);
      // saved once more after it continued
      const again = memorySink();
      await restored.save(again);
      expect(again.sizeBytes).toBeGreaterThan(sink.sizeBytes);
    }
    expect(tiered.model.metrics().tiers).toMatchObject({ numStoredTokens: 0 });
    await tiered.close();
    await plain.close();
  });

  test.each(['slide', 'evict'] as const)(
    'beyond the context with %s: the oldest pages are evicted from any tier',
    async (overflow) => {
      const kv = { budget: 6 * blockBytes(4), offload: { memory: 2 ** 20 } };
      const { model, close } = await load(name, { context: 640, kvCache: kv });
      using session = model.createSession();
      const result = await session.generate(ids(600), { ...greedy, overflow, maxTokens: numBeyond }).result();
      expect([result.tokens.length, result.finishReason]).toEqual([numBeyond, 'length']);
      expect(result.evictedTokens).toBeGreaterThan(599 + numBeyond - 640 - 64);
      expect(model.metrics().tiers?.numStoredTokens).toBeLessThanOrEqual(640);
      expect(model.metrics().cache.numEvictedTokens).toBe(result.evictedTokens);
      await close();
    },
  );
});

describe.each(['lfm2', 'qwen35', 'qwen3next', 'granitehybrid', 'falcon-h1'])(
  'recurrent states of %s with tiers',
  (name) => {
    const path = archPath(name, 'model.gguf');
    const missing = path === undefined ? ' (needs ../shared/data/goldens)' : '';
    test.skipIf(path === undefined)(`the same tokens, also after truncation and from a file${missing}`, async () => {
      const file = path as string;
      const size = { context: 512, maxSessions: 2, batchSize: 32, kvCache: { prefixSharing: false } };
      await using whole = await loadModel(file, size);
      const prompt = ids(330);
      const expected = (await whole.generate(prompt, { ...greedy, maxTokens: 24 }).result()).tokens;
      const kv = { budget: 7 * 64 * whole.plan.kvBytesPerToken, offload: { memory: 2 ** 22 } };
      await using model = await loadModel(file, { ...size, kvCache: { ...kv, prefixSharing: false } });
      using session = model.createSession();
      const result = await session.generate(prompt, { ...greedy, maxTokens: 24 }).result();
      expect(result.tokens).toEqual(expected);
      session.truncate(200);
      expect((await session.generate(prompt, { ...greedy, maxTokens: 12 }).result()).tokens).toEqual(
        expected.slice(0, 12),
      );
      const sink = memorySink();
      await session.save(sink);
      using restored = await model.restoreSession(memorySource(sink.toBytes()));
      expect((await restored.resume({ maxTokens: 12 }).result()).tokens).toEqual(expected.slice(12));
      expect(model.metrics().tiers?.numDemotedTokens).toBeGreaterThan(0);
    });
  },
);
