/** Models that skip FFN neurons by a calibration, with all neurons in memory and under a memory budget. */
import { readFileSync } from 'node:fs';
import { createWasmBackend } from '@winnow/backend-wasm';
import { memorySink, memorySource } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import { memoryFolder } from '@winnow/hub';
import type { Backend } from '@winnow/ops';
import { writeSafetensors } from '@winnow/safetensors';
import { sidecarContent, type Sidecar } from '@winnow/sparse-inference';
import { ArgumentError, CapacityError, FormatError, IoError } from '@winnow/tensor';
import { sampled, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  inspectModel,
  loadEmbeddingModel,
  loadModel,
  type ColdFiles,
  type FeedForwardAccess,
  type LoadOptions,
  type Model,
} from '../../src/index.js';
import { archPath, maxDifference } from '../support/golden-files.js';
import { coldFilesInMemory as folder, inMemory } from '../support/in-memory.js';
import { makeSidecar } from '../support/sidecars.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { memoryPageFile } from '@winnow/kv-cache';

const prompt = 'The captain looked at the sea and said';
const greedy = { temperature: 0, maxTokens: testCoverage === 'full' ? 48 : 12, ignoreEos: true };

const demo = inMemory(demoModelUrl);
let backend: Backend;
let traced: Model;
const sidecars = new Map<string, Sidecar>();
beforeAll(async () => {
  backend = await createWasmBackend({ numThreads: 1 });
  traced = await loadModel(demo, { backend, context: 256, trace: { feedForward: true } });
  const access = traced.feedForward as FeedForwardAccess;
  // a neuron whose gate is not positive contributes nothing
  sidecars.set('all', await makeSidecar(access, { kind: 'low-rank', threshold: -Infinity }));
  sidecars.set('all by gate', await makeSidecar(access, { kind: 'gate-threshold', threshold: 0 }));
  sidecars.set('gate', await makeSidecar(access, { kind: 'gate-threshold', threshold: 1e-30 }));
  // neurons of different frequencies, so that some are worth keeping in memory
  const frequencyOf = (neuron: number): number => 0.5 / (1 + (neuron % 50));
  sidecars.set('often', await makeSidecar(access, { kind: 'low-rank', threshold: -0.05, frequencyOf }));
  // gates within the rounding of the predictor are counted as active
  sidecars.set('low-rank', await makeSidecar(access, { kind: 'low-rank', threshold: -0.05 }));
});
afterAll(async () => {
  await traced.dispose();
  await backend.dispose();
});

const load = (name: string, options: LoadOptions = {}): Promise<Model> =>
  loadModel(demo, {
    backend,
    context: 256,
    sparsity: { calibration: sidecars.get(name) as Sidecar },
    ...options,
  });

describe('with all neurons in memory', () => {
  for (const name of ['all', 'all by gate', 'gate', 'low-rank']) {
    test(`${name}: log-probabilities and text of all neurons`, async () => {
      await using model = await load(name);
      const tokens = model.encodePrompt(prompt);
      const positions = [...tokens.keys()];
      for (const batchSize of [64, 1]) {
        const expected = await traced.logprobs(tokens, { positions, batchSize });
        const actual = await model.logprobs(tokens, { positions, batchSize });
        const worst = Math.max(...actual.map((row, at) => maxDifference(row, expected[at] as Float32Array)));
        // sums of 576 and 192 products in another order through 6 layers, for logits around 10
        expect(worst).toBeLessThan(1e-3);
      }
      const { text } = await model.generate(prompt, greedy).result();
      expect(text).toBe((await traced.generate(prompt, greedy).result()).text);
      const { layers } = model.metrics().feedForward as NonNullable<ReturnType<Model['metrics']>['feedForward']>;
      expect(layers.length).toBe(6);
      for (const { activeRatio, numItems, tiers } of layers) {
        expect(numItems).toBe(576);
        expect(tiers).toBeUndefined();
        if (name.startsWith('all')) expect(activeRatio).toBe(1);
        else expect(activeRatio).toBeLessThan(0.6);
      }
      expect(model.fallbacks).toEqual([]);
    });
  }

  test('`down` is in memory once, in neuron order', async () => {
    await using model = await load('low-rank');
    const { weightsBytes } = model.plan;
    const tables = 6 * (192 * 192 + 576 * 192) * (34 / 32) + 6 * 4 * 576;
    expect(weightsBytes).toBe(traced.plan.weightsBytes + tables);
  });
});

describe('under a budget of half the model', () => {
  const places = ['a temporary file', 'memory files'];
  for (const [index, name] of ['gate', 'low-rank'].entries()) {
    for (const where of sampled(places, 2, index)) {
      test(`${name}, with ${where}: the same text as without a budget`, async () => {
        await using whole = await load(name, { maxSessions: 1 });
        const place = where === 'memory files' ? { folder } : {};
        const weights = 0.5 * whole.plan.weightsBytes;
        const budget = Math.round(whole.plan.totalBytes - (name === 'gate' ? 0.2 : 0.5) * weights);
        await using model = await load(name, { maxSessions: 1, memory: { budget, ...place } });
        expect(model.plan.totalBytes).toBeLessThanOrEqual(budget);
        expect(model.plan.weightTiers).toMatchObject({ kind: 'neuron', numItems: 6 * 576 });
        const expected = await whole.generate(prompt, greedy).result();
        const actual = await model.generate(prompt, greedy).result();
        expect(actual.text).toBe(expected.text);
        expect(actual.tokens).toEqual(expected.tokens);
        const { cache, layers } = model.metrics().feedForward as NonNullable<
          ReturnType<Model['metrics']>['feedForward']
        >;
        expect(cache?.coldReads).toBeGreaterThan(0);
        expect(layers.every(({ tiers }) => (tiers?.numSlots ?? 576) < 576)).toBe(true);
        expect(layers.map(({ activeRatio }) => activeRatio)).toEqual(
          whole.metrics().feedForward?.layers.map(({ activeRatio }) => activeRatio),
        );
      });
    }
  }

  test('prompts that need more neurons than slots take several passes', async () => {
    await using whole = await load('low-rank', { maxSessions: 1 });
    const error = await load('low-rank', { maxSessions: 1, memory: 1000 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(CapacityError);
    const budget = (error as CapacityError).needed;
    await using model = await load('low-rank', { maxSessions: 1, memory: { budget, folder } });
    expect(model.plan.totalBytes).toBeLessThanOrEqual(budget);
    const expected = await whole.generate(prompt, greedy).result();
    expect((await model.generate(prompt, greedy).result()).text).toBe(expected.text);
    const { layers } = model.metrics().feedForward as NonNullable<ReturnType<Model['metrics']>['feedForward']>;
    for (const { tiers, numSteps, numBatches } of layers) {
      expect(tiers?.numPasses).toBeGreaterThan(numSteps + numBatches);
    }
  });
});

describe('weights in fewer bits outside the slots', () => {
  test('an 8-bit warm tier holds neurons where one of wider weights holds none', async () => {
    await using whole = await load('low-rank', { maxSessions: 1 });
    const budget = Math.round(whole.plan.totalBytes * 0.75);
    await using same = await load('often', { maxSessions: 1, memory: { budget, folder } });
    await using eight = await load('often', { maxSessions: 1, memory: { budget, folder, warm: 'q8_0' } });
    expect(same.plan.weightTiers?.warmBytes).toBe(0);
    expect(eight.plan.weightTiers?.warmBytes).toBeGreaterThan(0);
    expect(eight.plan.totalBytes).toBeLessThanOrEqual(budget);
    const tokens = whole.encodePrompt(prompt);
    const [expected] = await whole.logprobs(tokens);
    const [exact] = await same.logprobs(tokens);
    const [rounded] = await eight.logprobs(tokens);
    expect(maxDifference(exact as Float32Array, expected as Float32Array)).toBeLessThan(1e-3);
    // q8_0: half of 1/127 of the largest weight of a block
    expect(maxDifference(rounded as Float32Array, expected as Float32Array)).toBeLessThan(0.2);
    expect(eight.metrics().feedForward?.cache?.warmHits).toBeGreaterThan(0);
  });

  test('a 4-bit copy instead of the file: counted by the plan, never read again, with 4-bit precision', async () => {
    await using whole = await load('low-rank', { maxSessions: 1 });
    const budget = Math.round(whole.plan.totalBytes * 0.75);
    await using model = await load('often', { maxSessions: 1, memory: { budget, cold: 'q4_0' } });
    expect(model.plan.totalBytes).toBeLessThanOrEqual(budget);
    const { coldBytes, copyBytes, numItems } = model.plan.weightTiers as NonNullable<Model['plan']['weightTiers']>;
    expect(numItems).toBe(6 * 576);
    // 18 bytes for 32 values of 2 bytes each; neurons in slots are copied, too
    expect(copyBytes).toBeGreaterThanOrEqual((coldBytes * 9) / 32);
    expect(model.notices).toEqual([expect.stringMatching(/are kept in 4 bits/)]);
    const tokens = whole.encodePrompt(prompt);
    const [expected] = await whole.logprobs(tokens);
    const before = model.metrics().feedForward?.cache?.bytesRead;
    const [rounded] = await model.logprobs(tokens);
    const difference = maxDifference(rounded as Float32Array, expected as Float32Array);
    // q4_0: half of 1/8 of the largest weight of a block, sixteen times the error of q8_0
    expect(difference).toBeGreaterThan(1e-3);
    expect(difference).toBeLessThan(16 * 0.2);
    const { cache } = model.metrics().feedForward as NonNullable<ReturnType<Model['metrics']>['feedForward']>;
    expect(cache?.coldReads).toBeGreaterThan(0);
    expect(cache?.bytesRead).toBe(before);
    expect(cache?.bytes.cold).toBe(copyBytes);
  });
});

describe('placement of weights', () => {
  test('in several WebAssembly memories', async () => {
    const small = { bytesPerMemory: 2 ** 21, reservedBytes: 2 ** 20, numThreads: 1 };
    const several = await createWasmBackend(small);
    try {
      await using whole = await load('low-rank', { maxSessions: 1 });
      const budget = Math.round(whole.plan.totalBytes * 0.75);
      await using model = await load('low-rank', { maxSessions: 1, memory: { budget, folder }, backend: several });
      expect(several.numMemories).toBeGreaterThan(1);
      const expected = await whole.generate(prompt, greedy).result();
      expect((await model.generate(prompt, greedy).result()).text).toBe(expected.text);
      expect(model.metrics().feedForward?.cache?.coldReads).toBeGreaterThan(0);
    } finally {
      await several.dispose();
    }
  });

  test('inspectModel and loadModel give the same plan', async () => {
    const options = { context: 256, maxSessions: 1, sparsity: { calibration: sidecars.get('low-rank') as Sidecar } };
    const { plan } = await inspectModel(demoModelUrl, options);
    const budget = Math.round(plan.totalBytes * 0.75);
    const inspected = await inspectModel(demoModelUrl, { ...options, memory: budget });
    await using model = await load('low-rank', { maxSessions: 1, memory: { budget, folder } });
    expect(model.plan).toEqual(inspected.plan);
    expect(inspected.plan.weightTiers?.slotBytes).toBeGreaterThan(0);
  });
});

test('failed reads name the layer and the neurons, waiting reads can be canceled; the session remains usable', async () => {
  let onRead: (() => Promise<void>) | undefined;
  const files: ColdFiles = {
    async create(name) {
      const file = memoryPageFile({ name });
      return {
        name: file.name,
        write: (byteOffset, bytes) => file.write(byteOffset, bytes),
        sync: () => file.sync(),
        close: () => file.close(),
        get sizeBytes() {
          return file.sizeBytes;
        },
        async read(byteOffset, target) {
          await onRead?.();
          await file.read(byteOffset, target);
        },
      };
    },
  };
  await using whole = await load('low-rank', { maxSessions: 1 });
  const budget = Math.round(whole.plan.totalBytes * 0.75);
  const options = { maxSessions: 1, memory: { budget: budget, folder: files } };
  await using model = await load('low-rank', options);
  const session = model.createSession();
  onRead = async () => {
    throw new IoError({ source: 'cold', message: 'the disk is gone' });
  };
  await expect(session.generate(prompt, greedy).result()).rejects.toThrow(/layer \d+.*neuron/);
  const controller = new AbortController();
  let release = (): void => undefined;
  const blocked = new Promise<void>((resolve) => (release = resolve));
  onRead = () => {
    controller.abort(new Error('enough'));
    return blocked;
  };
  await expect(session.generate(prompt, { ...greedy, signal: controller.signal }).result()).rejects.toThrow('enough');
  onRead = undefined;
  release();
  const expected = await whole.generate(prompt, greedy).result();
  expect((await session.generate(prompt, greedy).result()).text).toBe(expected.text);
});

test('a layer with an adapter on its FFN runs dense and gives a notice', async () => {
  const values = (length: number): Float32Array => Float32Array.from({ length }, (_, i) => 0.1 * Math.sin(i));
  const tensor = (name: string, shape: readonly number[]) => {
    const data = new Uint8Array(values((shape[0] as number) * (shape[1] as number)).buffer);
    return { name: `base_model.model.model.layers.0.mlp.up_proj.${name}.weight`, dtype: 'f32' as const, shape, data };
  };
  const sink = memorySink();
  await writeSafetensors(sink, { tensors: [tensor('lora_A', [4, 32]), tensor('lora_B', [48, 4])] });
  const source = memoryFolder({
    'adapter_config.json': JSON.stringify({ peft_type: 'LORA', r: 4, lora_alpha: 8 }),
    'adapter_model.safetensors': sink.toBytes(),
  });
  const options = { backend, context: 64, lora: { adapters: [{ source }] } };
  await using plain = await loadModel(await tinyLlama(), { backend, context: 64, trace: { feedForward: true } });
  const sparse = await makeSidecar(plain.feedForward as FeedForwardAccess, { kind: 'low-rank', threshold: -Infinity });
  await using dense = await loadModel(await tinyLlama(), options);
  await using model = await loadModel(await tinyLlama(), { ...options, sparsity: { calibration: sparse } });
  expect(model.notices).toEqual(['1 layers have LoRA adapters on their FFNs and run dense']);
  const tokens = [1, 2, 3, 4, 5];
  const [expected] = await dense.logprobs(tokens);
  const [actual] = await model.logprobs(tokens);
  expect(maxDifference(actual as Float32Array, expected as Float32Array)).toBeLessThan(1e-4);
  expect(model.metrics().feedForward?.layers.map(({ layer }) => layer)).toEqual([1]);
  const [without] = await plain.logprobs(tokens);
  expect(maxDifference(actual as Float32Array, without as Float32Array)).toBeGreaterThan(1e-3);
});

describe('rejected calibrations', () => {
  test('of another model', async () => {
    const sidecar = { ...(sidecars.get('all') as Sidecar) };
    const refused = loadModel(await tinyLlama(), { backend, sparsity: { calibration: sidecar } });
    await expect(refused).rejects.toThrow(FormatError);
    await expect(refused).rejects.toThrow(/modelHash: .*calibrated for another model/);
    const sink = memorySink();
    await writeSafetensors(sink, sidecarContent(sidecar));
    const bytes = sink.toBytes();
    await expect(loadModel(await tinyLlama(), { backend, sparsity: { calibration: bytes } })).rejects.toThrow(
      FormatError,
    );
  });

  test('of weights with one bit flipped, if all of them are verified', async () => {
    const names = ['config.json', 'tokenizer.json', 'model.safetensors'];
    const files = Object.fromEntries(names.map((name) => [name, readFileSync(new URL(name, demoModelUrl))]));
    const location = memoryFolder(files);
    const calibration = sidecars.get('all') as Sidecar;
    const common = { backend, context: 16 };
    const options = { ...common, sparsity: { calibration, verify: true } };
    await (await loadModel(location, options)).dispose();
    const bytes = files['model.safetensors'] as Uint8Array;
    bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] as number) ^ 1; // in the middle of a matrix, where no sample is
    await expect(loadModel(location, options)).rejects.toThrow(FormatError);
    await expect(loadModel(location, options)).rejects.toThrow(/weights: expected xxh-all:.*damaged/);
    await (await loadModel(location, { ...common, sparsity: { calibration } })).dispose();
    await expect(loadModel(location, { ...common, sparsity: { verify: true } })).rejects.toThrow(ArgumentError);
    const { weightsChecksum: _unknown, ...old } = calibration;
    await expect(loadModel(location, { ...common, sparsity: { calibration: old, verify: true } })).rejects.toThrow(
      /calibrate again/,
    );
  });

  test('damaged anywhere; intact ones are read from bytes, blobs and open files', async () => {
    const sink = memorySink();
    await writeSafetensors(sink, sidecarContent(sidecars.get('gate') as Sidecar));
    const bytes = sink.toBytes();
    for (const at of [0, 20, bytes.length >> 1, bytes.length - 1]) {
      const damaged = bytes.slice();
      damaged[at] = (damaged[at] as number) ^ 0x10;
      await expect(load('gate', { sparsity: { calibration: damaged } })).rejects.toThrow(FormatError);
    }
    await expect(load('gate', { sparsity: { calibration: bytes.subarray(0, bytes.length - 8) } })).rejects.toThrow(
      FormatError,
    );
    for (const sparse of [bytes, new Blob([bytes]), memorySource(bytes, 'open')]) {
      await using model = await load('gate', { sparsity: { calibration: sparse } });
      expect(model.metrics().feedForward).toBeDefined();
    }
  });

  test('together with tracing', async () => {
    await expect(load('gate', { trace: { feedForward: true } })).rejects.toThrow(/trace\.feedForward/);
  });
});

for (const name of ['bert-mean', 'nomic-bert', 'modern-bert']) {
  const path = archPath(name, 'model.gguf');
  describe.skipIf(path === undefined)(`${name}${path ? '' : ' (needs ../shared/data/goldens)'}`, () => {
    for (const kind of ['low-rank', 'gate-threshold'] as const) {
      test(`${kind}: the vectors of all neurons, in memory and under a budget`, async () => {
        const sizes = { backend, context: 16, batchSize: 16, maxTexts: 2 };
        await using dense = await loadEmbeddingModel(path as string, { ...sizes, trace: { feedForward: true } });
        const all = kind === 'low-rank' ? -Infinity : 0;
        const sparse = await makeSidecar(dense.feedForward as FeedForwardAccess, { kind, threshold: all });
        const texts = ['one two', 'four', 'a longer text'];
        const expected = await dense.embed(texts);
        await using model = await loadEmbeddingModel(path as string, { ...sizes, sparsity: { calibration: sparse } });
        const difference = (actual: readonly Float32Array[]): number =>
          Math.max(...actual.map((vector, at) => maxDifference(vector, expected[at] as Float32Array)));
        const vectors = await model.embed(texts);
        expect(difference(vectors)).toBeLessThan(1e-5);
        const error = await loadEmbeddingModel(path as string, {
          ...sizes,
          sparsity: { calibration: sparse },
          memory: 1,
        }).catch((thrown: unknown) => thrown);
        const budget = (error as CapacityError).needed;
        await using tiered = await loadEmbeddingModel(path as string, {
          ...sizes,
          sparsity: { calibration: sparse },
          memory: { budget, folder },
        });
        expect(tiered.plan.weightTiers?.coldBytes).toBeGreaterThan(0);
        expect(await tiered.embed(texts)).toEqual(vectors);
        expect(tiered.feedForwardMetrics()?.layers.length).toBeGreaterThan(0);
      });
    }
  });
}
