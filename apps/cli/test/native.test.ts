/** Whole models on native kernels: what they compute is what WebAssembly computes. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memorySink, memorySource } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import * as engine from '@winnow/engine';
import { loadEmbeddingModel, loadModel, type LoadOptions, type Model } from '@winnow/engine';
import { openNative } from '@winnow/native/node';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runCli } from './run-cli.js';

const level = (await openNative(true)).kernels?.level;

const greedy = { temperature: 0, maxTokens: 24, ignoreEos: true } as const;
const text =
  'Once upon a time there was a little girl who had a red ball. She liked to play in the park with her dog. ';

function load(native: boolean, options: LoadOptions = {}): Promise<Model> {
  const exact = { context: 256, threads: 2, maxSessions: 1, activations: 'f32' } as const;
  return loadModel(demoModelUrl, { ...exact, native, ...options });
}

function promptOf(model: Model): readonly number[] {
  return [...model.encodePrompt(text.repeat(2))].slice(0, 120);
}

interface Result {
  readonly tokens: readonly number[];
  readonly logprobs: Float32Array;
}

async function compute(native: boolean, options: LoadOptions): Promise<Result> {
  await using model = await load(native, options);
  expect(model.backend).toBe(native ? `wasm+${level}` : 'wasm');
  const prompt = promptOf(model);
  const { tokens } = await model.generate(prompt, greedy).result();
  const [logprobs] = await model.logprobs(prompt, { positions: [prompt.length - 1] });
  return { tokens, logprobs: logprobs as Float32Array };
}

function maxDifference(a: Float32Array, b: Float32Array): number {
  return a.reduce((most, value, index) => Math.max(most, Math.abs(value - (b[index] as number))), 0);
}

/** The limit that the goldens' documentation derives for an f32 engine: sums in another order. */
const f32Limit = 5e-4;

const blockBytes = 64 * 6 * 2 * 128 * 4;
const policies = [
  'subquadratic:window=32,block=16',
  'streaming:window=32,sinks=4',
  'prefill=h2o:chunk=32,local=8,heavy=8',
  'decode=sparq:rank=4,topk=24',
  'decode=page-topk:budget=2,page=16,window=16,sinks=2',
  'decode=page-topk:page=16,epsilon=0.2',
];

describe.skipIf(level === undefined)('native kernels', () => {
  test.each<readonly [string, LoadOptions]>([
    ['dense', {}],
    ['a cache in f16', { kvCache: { dtype: 'f16' } }],
    ['a cache in tiers', { kvCache: { budget: 3 * blockBytes, offload: { memory: 2 ** 24 } } }],
    ...policies.map((attention) => [attention, { attention }] as const),
  ])('%s: log-probabilities and greedy tokens', async (_, options) => {
    const wasm = await compute(false, options);
    const native = await compute(true, options);
    expect(maxDifference(native.logprobs, wasm.logprobs)).toBeLessThan(f32Limit);
    expect(native.tokens).toEqual(wasm.tokens);
  });

  test.each(['q8_0', 'q4_0', 'q4_K'] as const)('%s with 8-bit activations', async (quantize) => {
    const exact = await compute(false, { quantize });
    const wasm = await compute(false, { quantize, activations: 'int8' });
    const native = await compute(true, { quantize, activations: 'int8' });
    // where sums in another order change an 8-bit code, either result is as far from the exact one as 8-bit codes are
    const limit = f32Limit + 2 * maxDifference(wasm.logprobs, exact.logprobs);
    expect(maxDifference(native.logprobs, wasm.logprobs)).toBeLessThan(limit);
  });

  test.each([true, false])(
    'a session saved with native kernels: %s is resumed without them, and the reverse',
    async (native) => {
      await using model = await load(native);
      const session = model.createSession();
      const { tokens: first } = await session.generate(promptOf(model), greedy).result();
      const sink = memorySink();
      await session.save(sink);
      const next = [...promptOf(model), ...first, 20];
      const { tokens: expected } = await session.generate(next, greedy).result();
      await using other = await load(!native);
      const resumed = await other.restoreSession(memorySource(sink.toBytes()));
      expect((await resumed.generate(next, greedy).result()).tokens).toEqual(expected);
    },
  );

  test('embeddings', async () => {
    const file = new URL('../../../packages/engine/test/fixtures/arch/bert-mean/model.gguf', import.meta.url);
    const vectors = [];
    for (const native of [false, true]) {
      await using model = await loadEmbeddingModel(fileURLToPath(file), { threads: 2, native });
      vectors.push(
        await model.embed([
          [2, 9, 3],
          [2, ...Array.from({ length: 40 }, (_, index) => 5 + index), 3],
        ]),
      );
    }
    const [wasm = [], native = []] = vectors;
    // components of vectors of length 1
    for (const [index, vector] of native.entries()) expect(maxDifference(vector, wasm[index]!)).toBeLessThan(f32Limit);
  });
});

describe.skipIf(level === undefined)('native kernels and long texts', () => {
  test('200 greedy tokens, where activations are exact', async () => {
    const generated = [];
    for (const native of [false, true]) {
      await using model = await load(native, { context: 384 });
      generated.push((await model.generate(promptOf(model), { ...greedy, maxTokens: 200 }).result()).tokens);
    }
    expect(generated[1]).toEqual(generated[0]);
    expect(generated[0]).toHaveLength(200);
  });
});

describe.skipIf(level === undefined)('native kernels and sparse FFNs', () => {
  let folder = '';
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'winnow-native-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  test('skipped neurons, with and without a memory budget', async () => {
    const sidecar = join(folder, 'demo.sparse.safetensors');
    const small = ['-t', '1', '--samples', '4', '--sample-tokens', '64', '--eval-tokens', '16'];
    const argv = ['calibrate', ...small, '--predictor', 'gate-threshold', '-o', sidecar, '-q'];
    expect(await runCli(engine, argv)).toMatchObject({ code: 0 });
    const whole = await compute(false, { sparsity: { calibration: sidecar } });
    const native = await compute(true, { sparsity: { calibration: sidecar } });
    expect(native.tokens).toEqual(whole.tokens);
    await using model = await load(true, { sparsity: { calibration: sidecar } });
    const { totalBytes, weightsBytes } = model.plan;
    const budget = await compute(true, {
      sparsity: { calibration: sidecar },
      memory: totalBytes - Math.floor(weightsBytes / 4),
    });
    expect(budget.tokens).toEqual(whole.tokens);
  });
});
