/** Attention policies in sessions: phases, batches, shared and restored pages, unlimited contexts. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { memorySink, memorySource } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import { sampled, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type GenerateOptions, type LoadOptions, type Model } from '../../../src/index.js';
import { inMemory } from '../../support/in-memory.js';
import { tinyFolder } from '../../support/tiny-model.js';

const greedy = { temperature: 0, ignoreEos: true } as const;
const drawn = { temperature: 1, topK: 0, topP: 1, minP: 0, ignoreEos: true } as const;
const text = 'The old man looked at the sea and said nothing for a long time. '.repeat(12);

const demo = inMemory(demoModelUrl);
let backend: Backend;
let dense: Model;
beforeAll(async () => {
  backend = await createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 28 });
  dense = await load('dense');
  expect(dense.attention).toBe('dense');
});
afterAll(async () => {
  await dense?.dispose();
  await backend?.dispose();
});

const load = (attention: string, options: LoadOptions = {}): Promise<Model> =>
  loadModel(demo, {
    backend,
    context: 512,
    maxSessions: 4,
    attention,
    ...options,
    kvCache: { capacity: 2048, ...options.kvCache },
  });

const prompts = [text.slice(0, 600), `A dog. ${text.slice(0, 250)}`, `Once. ${text.slice(0, 90)}`];
const wholeContext = [
  'streaming:window=4096,sinks=4',
  'subquadratic:window=4096,landmarks=off',
  'decode=sparq:rank=4,topk=4096',
  'decode=page-topk:budget=all,page=16',
  'prefill=h2o:chunk=4096',
  // cache blocks of unusual sizes
  'subquadratic:window=4096,block=48,landmarks=outside-window,bias=none',
  'decode=page-topk:budget=all,page=20',
  'prefill=subquadratic:window=4096,block=128,landmarks=outside-window;decode=page-topk:budget=all,page=24',
];
const sparse = [
  'streaming:window=48,sinks=4',
  'subquadratic:window=32,block=16',
  'decode=sparq:rank=8,topk=32,layout=both',
  'decode=page-topk:budget=1,page=16,window=16,sinks=1',
  'decode=verified-topk:epsilon=0.5,budget=1,page=16,window=16,sinks=1,sample=8',
  'prefill=h2o:chunk=64,local=16,heavy=16;decode=sparq:rank=8,topk=32',
  'prefill=streaming:window=48,sinks=4,delta=16',
  'prefill=subquadratic:window=48,block=32;decode=page-topk:budget=4,page=8;dense-first=1',
];

/** The tokens of dense attention after each prompt. */
async function denseTokens(optionsOf: (index: number) => GenerateOptions): Promise<(readonly number[])[]> {
  const results = prompts.map((prompt, index) => dense.generate(prompt, optionsOf(index)).result());
  return (await Promise.all(results)).map(({ tokens }) => tokens);
}

describe('policies that skip nothing', () => {
  const options = { ...greedy, maxTokens: testCoverage === 'full' ? 40 : 12 };
  let expected: (readonly number[])[];
  beforeAll(async () => {
    expected = await denseTokens(() => options);
  });

  test.each(wholeContext)('%s gives the tokens of dense attention', async (attention) => {
    await using model = await load(attention);
    expect(model.attention).not.toBe('dense');
    for (const index of sampled([...prompts.keys()], 3)) {
      expect((await model.generate(prompts[index]!, options).result()).tokens).toEqual(expected[index]);
    }
  });
});

const drawnAfter = (index: number): GenerateOptions => ({
  ...drawn,
  seed: index,
  maxTokens: testCoverage === 'full' ? 30 : 12,
});
let drawnDense: (readonly number[])[];
beforeAll(async () => {
  drawnDense = await denseTokens(drawnAfter);
});

describe.each(sparse)('%s', (attention) => {
  let model: Model;
  let alone: (readonly number[])[];
  beforeAll(async () => {
    model = await load(attention, { kvCache: { prefixSharing: false } });
    alone = [];
    for (const [index, prompt] of prompts.entries()) {
      alone.push((await model.generate(prompt, drawnAfter(index)).result()).tokens);
    }
  });
  afterAll(() => model.dispose());

  test('differs from dense, independent of the batch size and of other sessions', async () => {
    const together = await Promise.all(
      prompts.map((prompt, index) => model.generate(prompt, drawnAfter(index)).result()),
    );
    expect(together.map(({ tokens }) => tokens)).toEqual(alone);
    expect(model.metrics().steps.numSharedSteps).toBeGreaterThan(10);
    expect(drawnDense).not.toEqual(alone);
    await using single = await load(attention, { maxSessions: 1, batchSize: 64 });
    expect((await single.generate(prompts[0]!, drawnAfter(0)).result()).tokens).toEqual(alone[0]);
  });

  test('shared prefixes, forks, truncated and saved sessions keep the state of the policy', async () => {
    await using sharing = await load(attention);
    await sharing.generate(prompts[0]!, { ...greedy, maxTokens: 1 }).result();
    using session = sharing.createSession();
    const ids = sharing.encodePrompt(prompts[0]!);
    // another ending after whole blocks of the first prompt, then truncated and continued
    const other = [...ids.subarray(0, 140), 5, 6, 7];
    const first = await session.generate(other, drawnAfter(7)).result();
    expect(first.cachedTokens).toBe(128);
    expect(first.tokens).toEqual((await model.generate(other, drawnAfter(7)).result()).tokens);
    const cut = [...ids.subarray(0, 133), 9, 9];
    using fork = session.fork();
    const branch = await fork.generate(cut, drawnAfter(8)).result();
    expect(branch.tokens).toEqual((await model.generate(cut, drawnAfter(8)).result()).tokens);
    const sink = memorySink();
    await session.save(sink);
    const rest = await session.resume({ maxTokens: 10 }).result();
    using restored = await sharing.restoreSession(memorySource(sink.toBytes()));
    expect((await restored.resume({ maxTokens: 10 }).result()).tokens).toEqual(rest.tokens);
    await expect(dense.restoreSession(memorySource(sink.toBytes()))).rejects.toThrow(
      /options\.attention: expected none/,
    );
  });
});

test('streaming beyond the context: evicted positions were no longer attended to', async () => {
  const attention = 'streaming:window=40,sinks=6';
  await using endless = await loadModel(await tinyFolder(), { attention, context: 2048, maxSessions: 1 });
  const maxTokens = testCoverage === 'full' ? 600 : 320;
  for (const contextSize of [120, 300]) {
    await using model = await loadModel(await tinyFolder(), {
      attention,
      context: contextSize,
      batchSize: 16,
      maxSessions: 1,
    });
    for (const overflow of ['slide', 'evict'] as const) {
      const prompt = Array.from({ length: 400 }, (_, index) => (index * 7) % 20);
      const options = { ...drawn, seed: 3, maxTokens };
      const result = await model.generate(prompt, { ...options, overflow }).result();
      expect(result.tokens).toEqual((await endless.generate(prompt, options).result()).tokens);
      expect(model.metrics().cache.numEvictedTokens).toBeGreaterThan(prompt.length + maxTokens - contextSize - 100);
    }
  }
});

test('generated tokens and log-probabilities use the policy of their phase', async () => {
  await using model = await load('decode=sparq:rank=4,topk=16,local=4', { maxSessions: 1 });
  await using dense = await load('dense', { maxSessions: 1 });
  const ids = model.encodePrompt(prompts[0]!);
  const positions = [ids.length - 1];
  const [expected] = await dense.logprobs(ids, { positions });
  const [prefill] = await model.logprobs(ids, { positions, batchSize: 1 });
  for (const [id, value] of prefill!.entries()) expect(value).toBeCloseTo(expected![id]!, 3);
  const [decode] = await model.logprobs(ids, { positions, phase: 'decode' });
  expect(Math.max(...decode!.map((value, id) => Math.abs(value - expected![id]!)))).toBeGreaterThan(0.01);
});

test.each([
  ['dense', 64],
  ['subquadratic:block=16', 64],
  ['subquadratic:block=48', 96],
  ['subquadratic:block=128', 128],
  ['prefill=subquadratic:block=48;decode=page-topk:page=64', 192],
])('%s has blocks of %i tokens', async (attention, blockSize) => {
  await using model = await load(attention);
  expect(model.metrics().cache.blockSize).toBe(blockSize);
});

describe('errors', () => {
  test.each([
    ['nonsense', /attention/],
    ['decode=h2o', /decode/],
    ['subquadratic:block=2000', /at most 1024 tokens, got 2000 tokens/],
    ['prefill=subquadratic:block=48;decode=page-topk:page=125', /at most 1024 tokens, got 48 and 125 tokens/],
    ['layers=99:dense', /layers from 0 to/],
  ])('%s', async (attention, message) => {
    const folder = await tinyFolder();
    await expect(loadModel(folder, { attention, backend: createReferenceBackend() })).rejects.toThrow(ArgumentError);
    await expect(loadModel(folder, { attention, backend: createReferenceBackend() })).rejects.toThrow(message);
  });

  test('dropping tokens under a policy that relies on fixed positions is rejected', async () => {
    await using model = await loadModel(await tinyFolder(), { attention: 'subquadratic:window=8,block=16' });
    const refused = model.generate([1, 2], { ...greedy, overflow: 'slide' }).result();
    await expect(refused).rejects.toThrow(/overflow: expected stop/);
  });
});
