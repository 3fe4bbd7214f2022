/** On every architecture with a dense FFN, the sparse path with all neurons active equals the dense path, also in tiers. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { CapacityError, type DType } from '@winnow/tensor';
import { sampled } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type FeedForwardAccess, type LoadOptions, type Model } from '../../src/index.js';
import { archPath, goldenNames, maxDifference } from '../support/golden-files.js';
import { coldFilesInMemory as folder, inMemory } from '../support/in-memory.js';
import { makeSidecar } from '../support/sidecars.js';

const backends: Record<string, Backend> = {};
beforeAll(async () => {
  backends['WebAssembly'] = await createWasmBackend({ numThreads: 1 });
  backends['WebAssembly, f32'] = await createWasmBackend({ numThreads: 1, activations: 'f32' });
  backends['reference'] = createReferenceBackend();
});
afterAll(async () => {
  for (const backend of Object.values(backends)) await backend.dispose();
});

/** f32 sums of a few hundred products in another order; the limit of the goldens. */
const limit = 5e-4;
const tokens = Array.from({ length: 21 }, (_, i) => 5 + ((i * 7) % 200));
const positions = [0, 9, 20];
const sizes = { context: 32, batchSize: 16, maxSessions: 1 };

const worst = (actual: readonly Float32Array[], expected: readonly Float32Array[]): number =>
  Math.max(...actual.map((row, at) => maxDifference(row, expected[at] as Float32Array)));

/** The smallest memory budget, as named by the error for a smaller one. */
async function smallestLimit(path: string, options: LoadOptions): Promise<number> {
  const error = await loadModel(path, { ...options, memory: 1 }).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(CapacityError);
  return (error as CapacityError).needed;
}

/** The log-probabilities with steps of many tokens and of one. */
async function rowsOf(model: Model): Promise<Float32Array[][]> {
  const rows: Float32Array[][] = [];
  for (const batchSize of [16, 1]) rows.push(await model.logprobs(tokens, { positions, batchSize }));
  return rows;
}

/** Layers so small that the predictors take more memory than tiers would save. */
const tooSmall: readonly string[] = ['smollm3', 'granitehybrid', 'falcon-h1', 'falcon-h1-norm', 'gemma4'];

const names = Object.values(goldenNames)
  .flat()
  .filter((name) => !/moe|mixtral|gpt-oss|deepseek|llama4|mamba|gemma3n|qwen3next/.test(name));

for (const [index, name] of names.entries()) {
  const path = archPath(name, 'model.gguf');
  describe.skipIf(path === undefined)(`${name}${path ? '' : ' (needs ../shared/data/goldens)'}`, () => {
    for (const backendName of sampled(['WebAssembly', 'reference'], 2, index % 4 === 0 ? 1 : 0)) {
      test(`${backendName} backend`, async () => {
        const options = { ...sizes, backend: backends[backendName] as Backend };
        await using dense = await loadModel(inMemory(path as string), { ...options, trace: { feedForward: true } });
        const expected = await dense.logprobs(tokens, { positions });
        const access = dense.feedForward as FeedForwardAccess;
        expect(access.layers.length).toBe(dense.config.numLayers);
        const isGated = access.layers.every((layer) => layer.isGated);
        const kinds = ['low-rank', 'gate-threshold', ...(isGated ? (['low-rank-product'] as const) : [])] as const;
        for (const kind of sampled(kinds, kinds.length, index % kinds.length)) {
          const sparse = await makeSidecar(access, { kind, threshold: kind === 'low-rank' ? -Infinity : 0 });
          await using whole = await loadModel(inMemory(path as string), {
            ...options,
            sparsity: { calibration: sparse },
          });
          const rows = await rowsOf(whole);
          for (const row of rows) expect(worst(row, expected)).toBeLessThan(limit);
          if (tooSmall.includes(name)) continue;
          const least = await smallestLimit(path as string, { ...options, sparsity: { calibration: sparse } });
          await using tiered = await loadModel(inMemory(path as string), {
            ...options,
            sparsity: { calibration: sparse },
            memory: { budget: Math.floor((least + whole.plan.totalBytes) / 2), folder },
          });
          expect(tiered.plan.weightTiers?.coldBytes).toBeGreaterThan(0);
          // passes give the same bits
          expect(await rowsOf(tiered)).toEqual(rows);
        }
      });
    }
  });
}

/**
 * Transposing a block-quantized matrix rounds it again, so `down` has two rounding errors where the other matrices have
 * one. A wrong row or block would exceed three times the error of all matrices by far.
 */
describe.each<DType>(['f16', 'q8_0', 'q4_0'])('stored as %s', (quantize) => {
  const path = archPath('llama', 'model.gguf');
  test.skipIf(path === undefined)(
    `all neurons, whole and in tiers${path ? '' : ' (needs ../shared/data/goldens)'}`,
    async () => {
      const options = { ...sizes, quantize, backend: backends['WebAssembly, f32'] as Backend };
      await using exact = await loadModel(inMemory(path as string), { ...sizes, backend: options.backend });
      await using dense = await loadModel(inMemory(path as string), { ...options, trace: { feedForward: true } });
      const access = dense.feedForward as FeedForwardAccess;
      const sparse = await makeSidecar(access, { kind: 'low-rank', threshold: -Infinity });
      await using whole = await loadModel(inMemory(path as string), { ...options, sparsity: { calibration: sparse } });
      const budget = await smallestLimit(path as string, { ...options, sparsity: { calibration: sparse } });
      await using tiered = await loadModel(inMemory(path as string), {
        ...options,
        sparsity: { calibration: sparse },
        memory: { budget, folder },
      });
      // in 4 bits the whole of this small model fits the smallest budget of its tiers
      if (quantize !== 'q4_0') expect(tiered.plan.weightTiers?.coldBytes).toBeGreaterThan(0);
      const expected = await exact.logprobs(tokens, { positions });
      const rows = await whole.logprobs(tokens, { positions });
      expect(worst(rows, expected)).toBeLessThan(3 * worst(await dense.logprobs(tokens, { positions }), expected));
      expect(await tiered.logprobs(tokens, { positions })).toEqual(rows);
    },
  );
});
