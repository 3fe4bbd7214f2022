/** Mixture-of-experts models under a memory budget read the experts of a step from the file; results stay the same. */
import { readFileSync } from 'node:fs';
import { createWasmBackend } from '@winnow/backend-wasm';
import { memorySink, memorySource, type ByteSource } from '@winnow/bytes';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { CapacityError, IoError } from '@winnow/tensor';
import { sampled, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { inspectModel, loadModel, type LoadOptions, type Model } from '../../src/index.js';
import { archPath, readJson } from '../support/golden-files.js';
import { inMemory } from '../support/in-memory.js';

interface Golden {
  readonly prompts: readonly { readonly tokens: readonly number[]; readonly greedy: readonly number[] }[];
}

const names = ['mixtral', 'qwen2moe', 'qwen3moe', 'olmoe', 'lfm2moe', 'qwen35moe', 'granitemoe', 'gpt-oss'];
const backends: Record<string, Backend> = {};
beforeAll(async () => {
  backends['WebAssembly'] = await createWasmBackend({ numThreads: 1 });
  backends['reference'] = createReferenceBackend();
});
afterAll(async () => {
  for (const backend of Object.values(backends)) await backend.dispose();
});

/** A memory budget that fits about half of the experts, or two of three. */
async function fewerExperts(path: string, options: LoadOptions): Promise<number> {
  const { tensors, plan } = await inspectModel(path, options);
  const experts = tensors.filter(({ name }) => /experts|_exps|_linear/.test(name));
  const divisor = path.includes('gpt-oss') ? 3 : 2;
  return plan.totalBytes - Math.round(experts.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) / divisor);
}

/** The model with all experts in memory, and with half of them in memory. */
async function loadBoth(path: string, backend: Backend): Promise<[whole: Model, tiered: Model]> {
  const options = { backend, context: 256, batchSize: 64, maxSessions: 2 };
  const whole = await loadModel(inMemory(path), options);
  const budget = await fewerExperts(path, options);
  const tiered = await loadModel(inMemory(path), { ...options, memory: budget });
  expect(tiered.plan.totalBytes).toBeLessThanOrEqual(budget);
  expect(tiered.plan.weightTiers).toMatchObject({ kind: 'expert' });
  expect(tiered.plan.weightTiers?.coldBytes).toBeGreaterThan(0);
  return [whole, tiered];
}

for (const [nameIndex, name] of names.entries()) {
  for (const [index, file] of ['model.gguf', 'hf'].entries()) {
    const [path, goldenPath] = [archPath(name, file), archPath(name, 'golden.json')];
    const isMissing = path === undefined || goldenPath === undefined;
    describe.skipIf(isMissing)(`${name}/${file}${isMissing ? ' (needs ../shared/data/goldens)' : ''}`, () => {
      // the reference reads experts as WebAssembly does: it runs two of the architectures
      for (const backendName of sampled(['WebAssembly', 'reference'], 2, nameIndex % 3 === 0 ? index : 0)) {
        describe(`${backendName} backend`, () => {
          let whole: Model;
          let tiered: Model;
          beforeAll(async () => {
            [whole, tiered] = await loadBoth(path as string, backends[backendName] as Backend);
          });
          afterAll(async () => {
            await whole?.dispose();
            await tiered?.dispose();
          });

          test('bit-identical log-probabilities, for prompts in one step and token by token', async () => {
            for (const { tokens } of readJson<Golden>(goldenPath as string).prompts.slice(1, 3)) {
              for (const batchSize of [64, 7, 1]) {
                const options = { positions: [0, tokens.length >> 1, tokens.length - 1], batchSize };
                expect(await tiered.logprobs(tokens, options)).toEqual(await whole.logprobs(tokens, options));
              }
            }
          });

          test('the greedy ids of the golden', async () => {
            for (const { tokens, greedy } of readJson<Golden>(goldenPath as string).prompts) {
              const options = { temperature: 0, maxTokens: greedy.length, ignoreEos: true };
              expect((await tiered.generate(tokens, options).result()).tokens).toEqual(greedy);
            }
            const { feedForward } = tiered.metrics();
            expect(feedForward?.cache?.misses).toBeGreaterThan(0);
            expect(feedForward?.cache?.bytesRead).toBeGreaterThan(0);
            expect(feedForward?.layers.length).toBeGreaterThan(0);
            const { numChosen, numExperts } = tiered.config.experts as { numChosen: number; numExperts: number };
            for (const { activeRatio } of feedForward?.layers ?? [])
              expect(activeRatio).toBeCloseTo(numChosen / numExperts);
          });

          if (file === 'hf' && testCoverage !== 'full') return; // sessions know nothing of the file
          test('sessions that share steps, and one that is saved here and resumed without a budget', async () => {
            const { prompts } = readJson<Golden>(goldenPath as string);
            const options = { temperature: 0, maxTokens: 8, ignoreEos: true };
            const [first, second] = await Promise.all(
              prompts.slice(0, 2).map(({ tokens }) => tiered.generate(tokens, options).result()),
            );
            expect(first?.tokens).toEqual(prompts[0]?.greedy.slice(0, 8));
            expect(second?.tokens).toEqual(prompts[1]?.greedy.slice(0, 8));
            const session = tiered.createSession();
            await session.generate(prompts[2]?.tokens as number[], options).result();
            const file = memorySink();
            await session.save(file);
            session.dispose();
            const restored = await whole.restoreSession(memorySource(file.toBytes()));
            const { tokens } = await restored.resume({ maxTokens: 4 }).result();
            expect(tokens).toEqual(prompts[2]?.greedy.slice(8, 12));
            restored.dispose();
          });
        });
      }
    });
  }
}

const mixtral = archPath('mixtral', 'model.gguf');

const options = { context: 64, batchSize: 8, maxSessions: 1 };

/** The model's file with reads that can fail or wait. */
function source(): ByteSource & { onRead: (() => Promise<void>) | undefined; isClosed: boolean } {
  const memory = memorySource(readFileSync(mixtral as string), 'mixtral');
  const file = {
    name: memory.name,
    sizeBytes: memory.sizeBytes,
    onRead: undefined as (() => Promise<void>) | undefined,
    isClosed: false,
    async read(byteOffset: number, target: Uint8Array, readOptions?: { signal?: AbortSignal }) {
      await file.onRead?.();
      await memory.read(byteOffset, target, readOptions);
    },
    async close() {
      file.isClosed = true;
    },
  };
  return file;
}

async function openTiered(file: ByteSource): Promise<Model> {
  const backend = createReferenceBackend();
  const budget = await fewerExperts(mixtral as string, { ...options, backend });
  return loadModel(file, { ...options, backend, memory: budget });
}

const needsMixtral = mixtral ? '' : ' (needs ../shared/data/goldens)';

describe.skipIf(mixtral === undefined)(`budgets${needsMixtral}`, () => {
  test('the error for a budget that is too small names the smallest one that works', async () => {
    const load = (budget: number): Promise<Model> =>
      loadModel(mixtral as string, { ...options, backend: createReferenceBackend(), memory: budget });
    const error = await load(1000).catch((thrown: unknown) => thrown as CapacityError);
    expect(error).toBeInstanceOf(CapacityError);
    const { needed } = error as CapacityError;
    await using model = await load(needed);
    expect(model.plan.totalBytes).toBeLessThanOrEqual(needed);
    const { tokens } = await model.generate([1, 2, 3], { temperature: 0, maxTokens: 4 }).result();
    expect(tokens.length).toBe(4);
    await expect(load(needed - 1)).rejects.toThrow(CapacityError);
  });

  test.each(['f16', 'bf16', 'q8_0'] as const)(
    'experts stored as %s while loading give the same results in slots',
    async (quantize) => {
      const backend = await createWasmBackend({ numThreads: 1, activations: 'f32' });
      const stored = { ...options, quantize, backend };
      await using whole = await loadModel(mixtral as string, stored);
      const error = await loadModel(mixtral as string, { ...stored, memory: 1 }).catch((thrown: unknown) => thrown);
      const budget = (error as CapacityError).needed + 4000;
      await using tiered = await loadModel(mixtral as string, { ...stored, memory: budget });
      expect(tiered.plan.weightTiers?.coldBytes).toBeGreaterThan(0);
      const ids = Array.from({ length: 20 }, (_, i) => 3 + i);
      for (const batchSize of [8, 1]) {
        const logprobs = { positions: [4, 19], batchSize };
        expect(await tiered.logprobs(ids, logprobs)).toEqual(await whole.logprobs(ids, logprobs));
      }
      await tiered.dispose();
      await whole.dispose();
      await backend.dispose();
    },
  );
});

describe.skipIf(mixtral === undefined)(`files and tiers${needsMixtral}`, () => {
  test('the file stays open until the model is disposed', async () => {
    const file = source();
    const model = await openTiered(file);
    expect(file.isClosed).toBe(false);
    await model.dispose();
    expect(file.isClosed).toBe(true);
  });

  test('the KV cache and the experts in tiers at the same time', async () => {
    const backend = backends['WebAssembly'] as Backend;
    const sizes = { context: 512, batchSize: 8, maxSessions: 1, backend };
    await using whole = await loadModel(mixtral as string, sizes);
    const { kvBytesPerToken } = whole.plan;
    const kv = { budget: 5 * 64 * kvBytesPerToken, offload: { memory: 2 ** 20 } };
    const error = await loadModel(mixtral as string, { ...sizes, kvCache: kv, memory: 1 }).catch((e: unknown) => e);
    const budget = (error as CapacityError).needed;
    await using tiered = await loadModel(mixtral as string, { ...sizes, kvCache: kv, memory: budget });
    const prompt = Array.from({ length: 400 }, (_, i) => 3 + ((i * 13) % 250));
    const greedy = { temperature: 0, maxTokens: 16, ignoreEos: true };
    const { tokens } = await tiered.generate(prompt, greedy).result();
    expect(tokens).toEqual((await whole.generate(prompt, greedy).result()).tokens);
    const { tiers, feedForward } = tiered.metrics();
    expect(tiers?.numHits).toBeGreaterThan(0);
    expect(feedForward?.cache?.misses).toBeGreaterThan(0);
  });
});

describe.skipIf(mixtral === undefined)(`failures${needsMixtral}`, () => {
  test('a failed read names the layer and the experts; the session remains usable', async () => {
    const file = source();
    await using model = await openTiered(file);
    const session = model.createSession();
    file.onRead = async () => {
      throw new IoError({ source: 'mixtral', message: 'the disk is gone' });
    };
    const failed = session.generate([1, 2, 3, 4], { temperature: 0, maxTokens: 12 }).result();
    await expect(failed).rejects.toThrow(/layer \d+.*expert/);
    file.onRead = undefined;
    const again = await session.generate([1, 2, 3, 4], { temperature: 0, maxTokens: 12 }).result();
    await using whole = await loadModel(mixtral as string, { ...options, backend: createReferenceBackend() });
    const expected = await whole.generate([1, 2, 3, 4], { temperature: 0, maxTokens: 12 }).result();
    expect(again.tokens).toEqual(expected.tokens);
  });

  test('a generation can be aborted while it waits for the file', async () => {
    const file = source();
    await using model = await openTiered(file);
    const session = model.createSession();
    const controller = new AbortController();
    let release = (): void => undefined;
    const blocked = new Promise<void>((resolve) => (release = resolve));
    file.onRead = () => {
      controller.abort(new Error('enough'));
      return blocked;
    };
    const { signal } = controller;
    const failed = session.generate([1, 2, 3, 4], { temperature: 0, maxTokens: 12, signal }).result();
    await expect(failed).rejects.toThrow('enough');
    file.onRead = undefined;
    release();
    const again = await session.generate([1, 2, 3, 4], { temperature: 0, maxTokens: 12 }).result();
    await using whole = await loadModel(mixtral as string, { ...options, backend: createReferenceBackend() });
    const expected = await whole.generate([1, 2, 3, 4], { temperature: 0, maxTokens: 12 }).result();
    expect(again.tokens).toEqual(expected.tokens);
  });
});
