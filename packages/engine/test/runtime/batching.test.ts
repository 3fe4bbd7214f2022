/** Sequences that share steps and memory give the results of running alone. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend } from '@winnow/ops';
import { CapacityError, createRng } from '@winnow/tensor';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadModel, type EngineEvent, type GenerateOptions, type Model } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { tinyFolder, watchedBackend } from '../support/tiny-model.js';
import { greedy, ids } from '../support/prompts.js';

const path = archPath('llama', 'model.gguf') as string;
const tinyIds = (length: number, step = 7): number[] => Array.from({ length }, (_, index) => (index * step) % 20);
/** Sampling in which a small error of the logits changes a draw sooner or later. */
const drawn = { temperature: 1, topK: 0, topP: 1, minP: 0, ignoreEos: true } as const;

interface Case {
  readonly prompt: readonly number[];
  readonly options: GenerateOptions;
  /** Steps that the others run before this one joins. */
  readonly delay: number;
}

const cases: readonly Case[] = [
  { prompt: ids(30), options: { ...greedy, maxTokens: 40 }, delay: 0 },
  { prompt: ids(150, 11), options: { ...drawn, seed: 3, maxTokens: 30 }, delay: 0 },
  {
    prompt: ids(1, 5),
    options: { ...drawn, seed: 4, maxTokens: 60, penaltyWindow: 9, repetitionPenalty: 1.3 },
    delay: 5,
  },
  { prompt: ids(64, 13), options: { ...drawn, topK: 40, seed: 5, maxTokens: 10 }, delay: 9 },
  { prompt: ids(200, 17), options: { ...drawn, seed: 6, maxTokens: 25, numTopLogprobs: 2 }, delay: 20 },
  { prompt: ids(65, 19), options: { ...greedy, maxTokens: 33 }, delay: 21 },
];

/** Runs all cases concurrently; each joins after `delay` steps. */
async function runTogether(model: Model, all: readonly Case[]): Promise<readonly (readonly number[])[]> {
  const numSteps = (): number => model.metrics().steps.numSteps;
  const begin = numSteps();
  return Promise.all(
    all.map(async ({ prompt, options, delay }) => {
      for (let turn = 0; numSteps() < begin + delay && turn < 10_000; turn++) {
        await new Promise((resolve) => setImmediate(resolve));
      }
      return (await model.generate(prompt, options).result()).tokens;
    }),
  );
}

async function runAlone(model: Model, all: readonly Case[]): Promise<readonly (readonly number[])[]> {
  const results: (readonly number[])[] = [];
  for (const { prompt, options } of all) results.push((await model.generate(prompt, options).result()).tokens);
  return results;
}

const backends: Readonly<Record<string, () => Backend | Promise<Backend>>> = {
  reference: () => createReferenceBackend(),
  'wasm, one thread': () => createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 27 }),
  'wasm, two threads': () => createWasmBackend({ numThreads: 2, minSharedWork: 0, maxMemoryBytes: 2 ** 27 }),
};

/** Forks of one session with different prompts, and their origin, give the tokens of fresh sessions. */
async function checkForks(model: Model): Promise<void> {
  using session = model.createSession();
  const start = await session.generate(ids(100), { ...greedy, maxTokens: 5 }).result();
  const { numUsedBlocks, numCopiedBlocks } = model.metrics().cache;
  const forks = [session.fork(), session.fork(), session.fork()];
  expect(model.metrics().cache.numUsedBlocks).toBe(numUsedBlocks);
  const endings = forks.map((_, index) => ids(10 + index, 29 + index));
  const all = [...ids(100), ...start.tokens];
  const results = await Promise.all(
    forks.map((fork, index) => fork.generate([...all, ...endings[index]!], { ...greedy, maxTokens: 20 }).result()),
  );
  expect(results.map(({ cachedTokens }) => cachedTokens)).toEqual([104, 104, 104]);
  expect(model.metrics().cache.numCopiedBlocks - numCopiedBlocks).toBe(3);
  for (const [index, { tokens }] of results.entries()) {
    const fresh = await model.generate([...all, ...endings[index]!], { ...greedy, maxTokens: 20 }).result();
    expect(tokens).toEqual(fresh.tokens);
  }
  // the origin has not changed
  const again = await session.generate([...all, 1, 2], { ...greedy, maxTokens: 20 }).result();
  expect(again.cachedTokens).toBe(104);
  const fresh = await model.generate([...all, 1, 2], { ...greedy, maxTokens: 20 }).result();
  expect(again.tokens).toEqual(fresh.tokens);
  for (const fork of forks) fork.dispose();
}

// the reference computes what the first of them does, slowly
const chosen = Object.keys(backends).filter((name) => testCoverage === 'full' || name !== 'reference');

describe.each(chosen)('continuous batching on %s', (name) => {
  let backend: Backend;
  let model: Model;
  beforeAll(async () => {
    backend = await backends[name]!();
    model = await loadModel(path, { backend, context: 256, kvCache: { capacity: 2048, prefixSharing: false } });
  });
  afterAll(async () => {
    await model.dispose();
    await backend.dispose();
  });

  test('greedy and sampled tokens are those of running alone, whichever sequences join or leave', async () => {
    const alone = await runAlone(model, cases);
    const before = model.metrics().steps;
    expect(before.numSharedSteps).toBe(0);
    expect(await runTogether(model, cases)).toEqual(alone);
    expect(await runTogether(model, cases.toReversed())).toEqual(alone.toReversed());
    const after = model.metrics();
    // batching takes far fewer steps than running alone
    expect(after.steps.numSteps - before.numSteps).toBeLessThan(1.4 * before.numSteps);
    expect(after.steps.numSharedSteps).toBeGreaterThan(40);
    expect(after.steps.numTokens).toBe(3 * before.numTokens);
    expect([after.numSessions, after.cache.numUsedBlocks]).toEqual([0, 0]);
  });

  test('log-probabilities in a batch with generations agree to four digits', async () => {
    const tokens = ids(100, 23);
    const positions = [0, 40, 63, 64, 99];
    const expected = await model.logprobs(tokens, { positions });
    const [actual] = await Promise.all([
      model.logprobs(tokens, { positions }),
      model.generate(ids(90), { ...greedy, maxTokens: 20 }).result(),
      model.generate(ids(7), { ...greedy, maxTokens: 20 }).result(),
    ]);
    for (const [index, values] of actual.entries()) {
      for (const [id, value] of values.entries()) expect(value).toBeCloseTo(expected[index]![id]!, 4);
    }
  });

  test('forks that share blocks diverge', () => checkForks(model));
});

test('step time and tokens per second', async () => {
  let clock = 0;
  const now = (): number => (clock += 5);
  await using model = await loadModel(await tinyFolder(), { context: 64, batchSize: 16, now });
  expect(model.metrics().steps).toMatchObject({ stepMs: 0, tokensPerSecond: 0 });
  await model.generate(tinyIds(20), { ...greedy, maxTokens: 3 }).result();
  const { numSteps, numTokens, stepMs, tokensPerSecond } = model.metrics().steps;
  // two chunks of the prompt and two tokens, 5 ms each between two clock readings
  expect([numSteps, numTokens, stepMs]).toEqual([4, 22, 20]);
  expect(tokensPerSecond).toBe(22 / 0.02);
});

test('more sessions than fit a step: all make progress', async () => {
  await using model = await loadModel(await tinyFolder(), {
    context: 128,
    kvCache: { capacity: 4096, prefixSharing: false },
    maxSessions: 45,
    batchSize: 16,
  });
  const options = (index: number): GenerateOptions => ({ ...drawn, seed: index, maxTokens: 20 });
  const done: number[] = [];
  const together = await Promise.all(
    Array.from({ length: 45 }, async (_, index) => {
      const { tokens } = await model.generate(tinyIds(1 + index), options(index)).result();
      done.push(index);
      return tokens;
    }),
  );
  const { numSteps, numTokens } = model.metrics().steps;
  // 1035 tokens of prompts in chunks of 16, 855 steps of single tokens, at most 32 sequences at a time
  expect(numTokens).toBe(1035 + 45 * 19);
  expect(numSteps).toBeLessThan(160);
  // no sequence starves: short prompts end while long ones are still computed
  expect(done.indexOf(0)).toBeLessThan(20);
  for (const [index, tokens] of together.entries()) {
    expect(tokens).toEqual((await model.generate(tinyIds(1 + index), options(index)).result()).tokens);
  }
});

describe('prefix sharing', () => {
  test('sessions reuse whole blocks that other sessions computed, even disposed ones', async () => {
    await using model = await loadModel(path, { context: 256, maxSessions: 3 });
    await using other = await loadModel(path, { context: 256, kvCache: { prefixSharing: false } });
    const expected = await other.generate([...ids(150), 5], { ...greedy, maxTokens: 20 }).result();
    await model.generate(ids(150), { ...greedy, maxTokens: 1 }).result();
    const result = await model.generate([...ids(150), 5], { ...greedy, maxTokens: 20 }).result();
    expect([result.cachedTokens, result.tokens]).toEqual([128, expected.tokens]);
    expect(model.metrics().cache).toMatchObject({ numSharedTokens: 128, numUsedBlocks: 0 });
    // cached blocks are free: a prompt that needs all of them gets them
    const large = await model.generate(ids(250, 3), { ...greedy, maxTokens: 3 }).result();
    expect(large.tokens).toEqual((await other.generate(ids(250, 3), { ...greedy, maxTokens: 3 }).result()).tokens);
    await model.generate(ids(250, 13), { ...greedy, maxTokens: 1 }).result();
    expect(model.metrics().cache.numReclaimedBlocks).toBeGreaterThan(0);
    await expect(other.generate(ids(150), { ...greedy, maxTokens: 1 }).result()).resolves.toMatchObject({
      cachedTokens: 0,
    });
  });
});

// five blocks, and two more for the second and third session
const kvCache = { capacity: 320, prefixSharing: false } as const;
const fivePages = { context: 320, kvCache, maxSessions: 3 };
const patient = { ...fivePages, kvCache: { ...kvCache, whenFull: 'wait' } } as const;

const prompts = [tinyIds(100), tinyIds(120, 3), tinyIds(90, 11)];

describe('a full pool', () => {
  test('error: requests that no longer fit are rejected, the others continue', async () => {
    await using model = await loadModel(await tinyFolder(), fivePages);
    const alone = await runAlone(
      model,
      prompts.map((prompt) => ({ prompt, options: { ...greedy, maxTokens: 150 }, delay: 0 })),
    );
    const outcomes = await Promise.allSettled(
      prompts.map((prompt) => model.generate(prompt, { ...greedy, maxTokens: 150 }).result()),
    );
    const refused = outcomes.filter(({ status }) => status === 'rejected');
    expect(refused.length).toBeGreaterThan(0);
    expect(refused.length).toBeLessThan(3);
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(CapacityError);
      else expect(outcome.value.tokens).toEqual(alone[index]);
    }
    expect(model.metrics().cache.numUsedBlocks).toBe(0);
  });

  test('wait: all give the tokens of running alone; the youngest is preempted', async () => {
    const events: EngineEvent[] = [];
    const onEvent = (event: EngineEvent): void => void events.push(event);
    await using model = await loadModel(await tinyFolder(), { ...patient, onEvent });
    const all = prompts.map((prompt, index) => ({
      prompt,
      options: index === 1 ? { ...greedy, maxTokens: 180 } : { ...drawn, seed: index, maxTokens: 150 },
      delay: 0,
    }));
    const alone = await runAlone(model, all);
    expect(model.metrics().steps.numPreemptions).toBe(0);
    expect(await runTogether(model, all)).toEqual(alone);
    const { steps, cache } = model.metrics();
    expect(steps.numPreemptions).toBeGreaterThan(0);
    expect([steps.numWaiting, cache.numUsedBlocks]).toEqual([0, 0]);
    expect(new Set(events.map(({ kind }) => kind))).toEqual(new Set(['waiting', 'preempted']));
  });
});

describe('waiting for room', () => {
  test('requests wait until idle sessions are disposed or the signal aborts', async () => {
    await using model = await loadModel(await tinyFolder(), patient);
    const idle = model.createSession();
    await idle.generate(tinyIds(300), { ...greedy, maxTokens: 1 }).result();
    const waiting = model.generate(tinyIds(200, 3), { ...greedy, maxTokens: 2 }).result();
    const controller = new AbortController();
    const impatient = model.generate(tinyIds(250, 11), { ...greedy, maxTokens: 2, signal: controller.signal }).result();
    const outcome = impatient.catch((error: unknown) => error);
    await vi.waitFor(() => expect(model.metrics().steps.numWaiting).toBe(2), { timeout: 5000, interval: 5 });
    controller.abort(new Error('no patience'));
    expect(await outcome).toMatchObject({ message: 'no patience' });
    expect(model.metrics().steps.numWaiting).toBe(1);
    idle.dispose();
    expect((await waiting).tokens).toHaveLength(2);
  });

  test('disposing the model rejects waiting requests', async () => {
    const model = await loadModel(await tinyFolder(), patient);
    const idle = model.createSession();
    await idle.generate(tinyIds(300), { ...greedy, maxTokens: 1 }).result();
    const outcome = model
      .generate(tinyIds(200, 3), greedy)
      .result()
      .catch((error: unknown) => error);
    await vi.waitFor(() => expect(model.metrics().steps.numWaiting).toBe(1), { timeout: 5000, interval: 5 });
    await model.dispose();
    expect(await outcome).toMatchObject({ code: 'released' });
  });
});

test('random sessions at random times: forks, aborts, early exits; no block leaks', async () => {
  const options = { context: 256, maxSessions: 6, kvCache: { whenFull: 'wait' } } as const;
  await using model = await loadModel(await tinyFolder(), options);
  await using alone = await loadModel(await tinyFolder(), { ...options, kvCache: { prefixSharing: false } });
  const rng = createRng(7);
  const pause = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const expected = new Map<string, readonly number[]>();
  async function expectSame(
    prompt: readonly number[],
    options: GenerateOptions,
    tokens: readonly number[],
  ): Promise<void> {
    const key = JSON.stringify([prompt, options]);
    const known = expected.get(key) ?? (await alone.generate(prompt, options).result()).tokens;
    expected.set(key, known);
    expect(tokens).toEqual(known);
  }
  const checks: (() => Promise<void>)[] = [];
  async function user(seed: number): Promise<void> {
    const own = createRng(seed);
    for (let round = 0; round < 12; round++) {
      for (let i = own.nextInt(5); i > 0; i--) await pause();
      using session = model.createSession();
      const prompt = tinyIds(1 + own.nextInt(170), [3, 7, 11][own.nextInt(3)]);
      const options = {
        ...(own.nextInt(2) === 0 ? greedy : { ...drawn, seed: own.nextInt(3) }),
        maxTokens: 1 + own.nextInt(20),
      };
      const way = own.nextInt(4);
      if (way === 0) {
        const controller = new AbortController();
        const generation = session.generate(prompt, { ...options, signal: controller.signal });
        const outcome = generation.result().catch((error: unknown) => error);
        for (let i = own.nextInt(4); i > 0; i--) await pause();
        controller.abort(new Error('enough'));
        await outcome;
      } else if (way === 1) {
        for await (const _token of session.generate(prompt, options)) if (own.nextInt(4) === 0) break;
      }
      const { tokens } = await session.generate(prompt, options).result();
      checks.push(() => expectSame(prompt, options, tokens));
      if (way === 2 && model.metrics().numSessions < 6) {
        using fork = session.fork();
        const longer = [...prompt, ...tokens];
        const more = { ...options, maxTokens: 5 };
        const [a, b] = await Promise.all([
          session.generate(longer, more).result(),
          fork.generate(longer.slice(0, -1), more).result(),
        ]);
        checks.push(() => expectSame(longer, more, a.tokens));
        checks.push(() => expectSame(longer.slice(0, -1), more, b.tokens));
      }
    }
  }
  await Promise.all(Array.from({ length: 4 }, (_, index) => user(rng.nextInt(1000) + index)));
  const { cache, steps } = model.metrics();
  expect([cache.numUsedBlocks, cache.numFreeBlocks + cache.numCachedBlocks]).toEqual([0, cache.numBlocks]);
  expect(steps.numSharedSteps).toBeGreaterThan(50);
  for (const check of checks) await check();
});

test('aborting one sequence does not cancel the step that it shares with others', async () => {
  const controller = new AbortController();
  let abortAt = Infinity;
  const { backend, log } = watchedBackend(
    createReferenceBackend(),
    () => new Promise((resolve) => setImmediate(resolve)),
    ({ numStarted }) => {
      if (numStarted === abortAt) controller.abort(new Error('enough'));
    },
  );
  await using model = await loadModel(await tinyFolder(), { backend, context: 256 });
  const expected = (await model.generate(tinyIds(20), { ...greedy, maxTokens: 30 }).result()).tokens;
  abortAt = log.numStarted + 10;
  const aborted = model.generate(tinyIds(20, 3), { ...greedy, signal: controller.signal }).result();
  const outcome = aborted.catch((error: unknown) => error);
  const { tokens } = await model.generate(tinyIds(20), { ...greedy, maxTokens: 30 }).result();
  expect(tokens).toEqual(expected);
  expect(await outcome).toMatchObject({ message: 'enough' });
  expect(model.metrics().steps.numSharedSteps).toBeGreaterThan(0);
  expect(log.numRuns).toBe(log.numStarted);
  await backend.dispose();
});
