/** Calibrated layers that run dense anyway, and calibrations that limit what can be offloaded. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import type { Backend } from '@winnow/ops';
import type { Sidecar } from '@winnow/sparse-inference';
import { CapacityError } from '@winnow/tensor';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadModel, type FeedForwardAccess, type LoadOptions, type Model } from '../../src/index.js';
import { coldFilesInMemory as folder, inMemory } from '../support/in-memory.js';
import { makeSidecar, type SidecarDesign } from '../support/sidecars.js';

const prompt = 'The captain looked at the sea and said';
const greedy = { temperature: 0, maxTokens: testCoverage === 'full' ? 40 : 8, ignoreEos: true };

const demo = inMemory(demoModelUrl);
let backend: Backend;
let dense: Model;
beforeAll(async () => {
  backend = await createWasmBackend({ numThreads: 1 });
  dense = await loadModel(demo, { backend, context: 128, maxSessions: 1, trace: { feedForward: true } });
});
afterAll(async () => {
  await dense.dispose();
  await backend.dispose();
});

const sidecars = new Map<SidecarDesign, Promise<Sidecar>>();

/** Loads the model with the sidecar of a design, which is made once. */
async function load(design: SidecarDesign, options: LoadOptions = {}): Promise<Model> {
  const made = sidecars.get(design) ?? makeSidecar(dense.feedForward as FeedForwardAccess, design);
  sidecars.set(design, made);
  const calibration = await made;
  return loadModel(demo, {
    backend,
    context: 128,
    maxSessions: 1,
    ...options,
    sparsity: { calibration, ...options.sparsity },
  });
}

const refusal = (loading: Promise<Model>): Promise<CapacityError> =>
  loading.then(
    () => expect.unreachable(),
    (error: unknown) => error as CapacityError,
  );
const layersOf = (model: Model): number[] => (model.metrics().feedForward?.layers ?? []).map(({ layer }) => layer);
const textOf = async (model: Model): Promise<string> => (await model.generate(prompt, greedy).result()).text;

test('above the break-even a layer runs dense and is not offloaded', async () => {
  const design = {
    kind: 'low-rank',
    threshold: 0.2,
    activeRatioOf: (layer: number) => (layer < 2 ? 0.9 : 0.1),
  } as const;
  await using whole = await load(design);
  const text = await textOf(whole);
  expect(layersOf(whole)).toEqual([2, 3, 4, 5]);
  expect(whole.notices).toEqual([
    expect.stringMatching(/^2 of 6 layers run dense, since more than \d+ % of their neurons are active/),
  ]);
  const error = await refusal(load(design, { memory: 1 }));
  expect(error).toBeInstanceOf(CapacityError);
  expect(error.message).toMatch(/2 layers run dense and stay in memory; sparsity.maxActive 1/);
  await using tiered = await load(design, { memory: { budget: error.needed, folder } });
  expect(tiered.plan.weightTiers?.numItems).toBe(4 * 576);
  expect(await textOf(tiered)).toBe(text);
  expect(layersOf(tiered)).toEqual([2, 3, 4, 5]);
});

test('with maxActive 1 every layer skips neurons, and less memory suffices', async () => {
  const design = { kind: 'low-rank', threshold: 0.2, activeRatioOf: () => 0.9 } as const;
  await using none = await load(design);
  expect(await textOf(none)).toBe(await textOf(dense));
  expect(layersOf(none)).toEqual([]);
  const error = await refusal(load(design, { memory: 1 }));
  expect(error.needed).toBe(none.plan.totalBytes);
  expect(error.message).toMatch(/6 layers run dense/);
  const sparsity = { maxActive: 1 };
  await using all = await load(design, { sparsity });
  const text = await textOf(all);
  expect(layersOf(all)).toEqual([0, 1, 2, 3, 4, 5]);
  expect(all.notices).toEqual([]);
  const { needed } = await refusal(load(design, { sparsity, memory: 1 }));
  expect(needed).toBeLessThan(error.needed);
  await using tiered = await load(design, { sparsity, memory: { budget: needed, folder } });
  expect(await textOf(tiered)).toBe(text);
});

test('with input-threshold only `down` is offloaded, and the error says why', async () => {
  const design = { kind: 'input-threshold', threshold: 0.05 } as const;
  await using whole = await load(design);
  const text = await textOf(whole);
  const error = await refusal(load(design, { memory: 1 }));
  expect(error.message).toMatch(
    /6 layers are calibrated by input-threshold, whose gate and up are read by input and stay in memory/,
  );
  const budget = error.needed + 50_000;
  await using tiered = await load(design, { memory: { budget, folder } });
  expect(tiered.plan.totalBytes).toBeLessThanOrEqual(budget);
  expect(tiered.plan.weightTiers?.coldBytes).toBeGreaterThan(0.2 * 6 * 576 * 192 * 2);
  expect(await textOf(tiered)).toBe(text);
  expect(tiered.metrics().feedForward?.cache?.coldReads).toBeGreaterThan(0);
});

test('with the oracle only neurons of `down` are offloaded', async () => {
  const design = { kind: 'low-rank', threshold: 0 } as const;
  const sparsity = { oracle: true };
  await using whole = await load(design, { sparsity });
  const { needed } = await refusal(load(design, { sparsity, memory: 1 }));
  await using tiered = await load(design, { sparsity, memory: { budget: needed, folder } });
  expect(await textOf(tiered)).toBe(await textOf(whole));
});
