/**
 * A memory budget of half the model's size: weights, KV cache and scratch together take at most half the bytes of the file,
 * and the text is that of the same calibration without a budget, token by token.
 */
import { statSync } from 'node:fs';
import { createWasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { calibrate, classifyNeurons, type Sidecar } from '@winnow/sparse-inference';
import { CapacityError } from '@winnow/tensor';
import { sampled, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  loadEmbeddingModel,
  loadModel,
  type FeedForwardAccess,
  type LoadOptions,
  type Model,
  type ModelLocation,
} from '../../src/index.js';
import { coldFilesInMemory as folder, inMemory } from '../support/in-memory.js';
import { makeSidecar, type SidecarDesign } from '../support/sidecars.js';
import { wideBert, wideLlama } from '../support/wide-model.js';

const backends: Record<string, Backend> = {};
beforeAll(async () => {
  backends['WebAssembly'] = await createWasmBackend({ numThreads: 1 });
  backends['reference'] = createReferenceBackend();
});
afterAll(async () => {
  for (const backend of Object.values(backends)) await backend.dispose();
});

const [manyTokens, referenceTokens] = testCoverage === 'full' ? [220, 60] : [10, 6];

/** Compares log-probabilities and greedy tokens with and without the budget. */
async function expectSame(
  location: ModelLocation,
  options: LoadOptions,
  budget: number,
  numTokens: number,
): Promise<void> {
  await using whole = await loadModel(location, options);
  await using half = await loadModel(location, { ...options, memory: { budget, folder } });
  expect(half.plan.totalBytes).toBeLessThanOrEqual(budget);
  const prompt = Array.from({ length: 24 }, (_, i) => 5 + ((i * 11) % 40));
  const generate = (model: Model): Promise<{ readonly tokens: readonly number[] }> =>
    model.generate(prompt, { temperature: 0, maxTokens: numTokens, ignoreEos: true }).result();
  const { tokens } = await generate(whole);
  expect(tokens.length).toBe(numTokens);
  expect((await generate(half)).tokens).toEqual(tokens);
  const logprobs = { positions: [0, 11, 23] };
  expect(await half.logprobs(prompt, logprobs)).toEqual(await whole.logprobs(prompt, logprobs));
  const { layers, cache } = half.metrics().feedForward as NonNullable<ReturnType<Model['metrics']>['feedForward']>;
  expect(cache?.coldReads).toBeGreaterThan(0);
  const ratios = layers.map(({ activeRatio }) => activeRatio);
  expect(ratios).toEqual(whole.metrics().feedForward?.layers.map(({ activeRatio }) => activeRatio));
  for (const ratio of ratios) expect(ratio).toBeLessThan(0.7);
  // some layer takes more than one pass, so that sums across passes are covered
  expect(layers.some(({ tiers, numSteps, numBatches }) => Number(tiers?.numPasses) > numSteps + numBatches)).toBe(true);
}

const demo = inMemory(demoModelUrl);

describe('the demo model', () => {
  // a third of its bytes is outside the FFNs, so the KV cache has to be small
  const options = { context: 256, maxSessions: 1, batchSize: 8, kvCache: { dtype: 'q8_0' } } as const;
  const halfBytes = Math.floor(statSync(new URL('model.safetensors', demoModelUrl)).size / 2);
  let sidecar: Sidecar;
  beforeAll(async () => {
    const backend = backends['WebAssembly'] as Backend;
    await using model = await loadModel(demo, { backend, context: 256, trace: { feedForward: true } });
    const samples = Array.from({ length: 10 }, (_, i) =>
      model.encodePrompt(`Chapter ${i}. The captain looked at the sea, and said that ${i * 7} ships would be there.`),
    );
    const access = model.feedForward as FeedForwardAccess;
    sidecar = await calibrate(access, { backend, samples, epochs: 0, rank: 32 });
  });

  const runs = [['WebAssembly', manyTokens] as const, ['reference', referenceTokens] as const];
  // the reference backend runs the models below
  for (const [name, numTokens] of sampled(runs, 2)) {
    test(`${name} backend: ${numTokens} tokens`, async () => {
      const backend = backends[name] as Backend;
      await expectSame(demo, { ...options, backend, sparsity: { calibration: sidecar } }, halfBytes, numTokens);
    });
  }

  // `npm test` runs the design below in q8_0
  test.skipIf(testCoverage !== 'full')('stored as q8_0, with 8-bit dot products', async () => {
    const stored = {
      ...options,
      backend: backends['WebAssembly'] as Backend,
      quantize: 'q8_0',
      sparsity: { calibration: sidecar },
    } as const;
    const error = await loadModel(demo, { ...stored, memory: 1 }).catch((thrown: unknown) => thrown);
    await expectSame(demo, stored, (error as CapacityError).needed + 20_000, referenceTokens);
  });

  test('the error for a smaller budget names the smallest one', async () => {
    const least = { ...options, backend: backends['WebAssembly'] as Backend, sparsity: { calibration: sidecar } };
    const error = await loadModel(demo, { ...least, memory: 2_000_000 }).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(CapacityError);
    const { needed } = error as CapacityError;
    expect(needed).toBeLessThan(halfBytes);
    await expect(loadModel(demo, { ...least, memory: needed - 1 })).rejects.toThrow(String(needed));
    await using model = await loadModel(demo, { ...least, memory: { budget: needed, folder } });
    // one group of neurons in every layer
    expect(model.plan.weightTiers?.numSlots).toBe(6 * 32);
  });
});

describe('hot neurons', () => {
  const options = { context: 256, maxSessions: 1, batchSize: 8, kvCache: { dtype: 'q8_0' } } as const;

  test('with hot: all, smaller budgets are rejected with the smallest one that pins every hot neuron', async () => {
    const backend = backends['WebAssembly'] as Backend;
    const { files } = await wideLlama(1024, 'relu');
    await using dense = await loadModel(files, { ...options, backend, trace: { feedForward: true } });
    const design = { kind: 'low-rank', threshold: 0.9, frequencyOf } as const;
    const sparse = await makeSidecar(dense.feedForward as FeedForwardAccess, design);
    const needed = async (hot?: 'fitting' | 'all'): Promise<CapacityError> => {
      const memory = { budget: 1, ...(hot === undefined ? {} : { hot }) };
      const few = { ...options, backend, sparsity: { calibration: sparse }, memory };
      return (await loadModel(files, few).catch((error: unknown) => error)) as CapacityError;
    };
    const [least, leastOfAll] = [await needed(), await needed('all')];
    expect((await needed('fitting')).needed).toBe(least.needed);
    expect(leastOfAll.needed).toBeGreaterThan(least.needed);
    const hot = sparse.layers.map(({ frequencies }) => classifyNeurons(frequencies).hot);
    const numHot = hot.reduce((sum, { length }) => sum + length, 0);
    expect(leastOfAll.message).toContain(`all ${numHot} hot neurons`);

    const loadWith = (budget: number): Promise<Model> =>
      loadModel(files, {
        ...options,
        backend,
        sparsity: { calibration: sparse },
        memory: { budget, folder, hot: 'all' },
      });
    const { needed: budget } = leastOfAll;
    await expect(loadWith(budget - 1)).rejects.toThrow(`needed ${budget} bytes`);
    await using model = await loadWith(budget);
    expect(model.plan.totalBytes).toBeLessThanOrEqual(budget);
    expect(model.plan.weightTiers?.numPinned).toBeGreaterThanOrEqual(numHot);
    await using whole = await loadModel(files, { ...options, backend, sparsity: { calibration: sparse } });
    const tokens = Array.from({ length: 16 }, (_, i) => 5 + ((i * 11) % 40));
    const positions = { positions: [0, 15] };
    expect(await model.logprobs(tokens, positions)).toEqual(await whole.logprobs(tokens, positions));
  });
});

const frequencyOf = (neuron: number): number => 0.9 / (1 + (neuron % 23));
/** Configurations besides plain WebAssembly; `npm test` runs each of them for one design. */
const others = [['reference'], ['WebAssembly', 'q8_0']] as const;
const othersOfDesign: Readonly<Record<string, readonly (typeof others)[number][]>> = {
  'ReLU, low-rank': [others[0]],
  'SwiGLU, gate threshold': [others[1]],
};
const designs: Record<string, SidecarDesign & { activation: 'silu' | 'relu' }> = {
  'ReLU, low-rank': { activation: 'relu', kind: 'low-rank', threshold: 0.9, frequencyOf },
  'SwiGLU, low-rank': { activation: 'silu', kind: 'low-rank', threshold: 0.5, frequencyOf },
  'SwiGLU, product of estimates': { activation: 'silu', kind: 'low-rank-product', threshold: 0.5, frequencyOf },
  'SwiGLU, gate threshold': { activation: 'silu', kind: 'gate-threshold', threshold: 0.3, frequencyOf },
};

for (const [name, { activation, ...design }] of Object.entries(designs)) {
  describe(`a model that is mostly FFN, ${name}`, () => {
    const sizes = { context: 256, maxSessions: 1, batchSize: 8, kvCache: { dtype: 'q8_0' } } as const;
    const chosen = testCoverage === 'full' ? others : (othersOfDesign[name] ?? []);
    for (const [backendName, quantize] of [['WebAssembly'] as const, ...chosen]) {
      // full-rank predictors in 8 bits are as large as the matrices
      if (design.kind === 'low-rank-product' && quantize !== undefined) continue;
      test(`${backendName} backend${quantize === undefined ? '' : `, ${quantize}`}`, async () => {
        const { files, sizeBytes } = await wideLlama(design.kind === 'gate-threshold' ? 2048 : 1024, activation);
        const backend = backends[backendName] as Backend;
        const options = { ...sizes, backend, ...(quantize === undefined ? {} : { quantize }) };
        await using dense = await loadModel(files, { ...options, trace: { feedForward: true } });
        const sparse = await makeSidecar(dense.feedForward as FeedForwardAccess, design);
        const modelBytes = quantize === undefined ? sizeBytes : dense.plan.weightsBytes;
        // with 8-bit weights, everything else is a larger share
        const share = quantize === undefined ? 0.5 : 0.75;
        await expectSame(
          files,
          { ...options, sparsity: { calibration: sparse } },
          Math.floor(modelBytes * share),
          referenceTokens,
        );
      });
    }
  });
}

describe('a BERT that is mostly FFN', () => {
  const texts = ['a b c d e f', 'g', 'h i j k l m n o p q r s', 'x y z z y x'];
  for (const [index, kind] of (['low-rank', 'gate-threshold'] as const).entries()) {
    for (const backendName of sampled(['WebAssembly', 'reference'], 2, index)) {
      test(`${kind}, ${backendName} backend: the same vectors as without a budget`, async () => {
        const { files, sizeBytes } = await wideBert(4096);
        const options = { backend: backends[backendName] as Backend, context: 16, batchSize: 16, maxTexts: 2 };
        await using dense = await loadEmbeddingModel(files, { ...options, trace: { feedForward: true } });
        const threshold = kind === 'low-rank' ? 0.8 : 0.5;
        const sparse = await makeSidecar(dense.feedForward as FeedForwardAccess, { kind, threshold, frequencyOf });
        await using whole = await loadEmbeddingModel(files, { ...options, sparsity: { calibration: sparse } });
        // `up` is read whole where it decides
        const share = kind === 'low-rank' ? 0.5 : 0.7;
        const budget = Math.floor(sizeBytes * share);
        await using half = await loadEmbeddingModel(files, {
          ...options,
          sparsity: { calibration: sparse },
          memory: { budget, folder },
        });
        expect(half.plan.totalBytes).toBeLessThanOrEqual(budget);
        expect(await half.embed(texts)).toEqual(await whole.embed(texts));
        expect(half.feedForwardMetrics()?.cache?.coldReads).toBeGreaterThan(0);
      });
    }
  }
});
