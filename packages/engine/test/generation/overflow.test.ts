/** Generation beyond the context, and resumed generations. */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { demoModelUrl } from '@winnow/demo-model';
import { testCoverage } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { loadModel, type EngineEvent, type GenerateOptions, type Model } from '../../src/index.js';
import { tinyFolder } from '../support/tiny-model.js';

const greedy = { temperature: 0, ignoreEos: true } as const;
const drawn = { temperature: 1, topK: 0, topP: 1, minP: 0, ignoreEos: true, seed: 5 } as const;
const ids = (length: number, step = 7): number[] => Array.from({ length }, (_, index) => (index * step) % 20);

const tokensOf = async (
  model: Model,
  prompt: readonly number[],
  options: GenerateOptions,
): Promise<readonly number[]> => (await model.generate(prompt, options).result()).tokens;

describe('a model with a sliding window of 24 tokens', () => {
  const windowed = () =>
    tinyFolder({ config: { model_type: 'mistral', sliding_window: 24, max_position_embeddings: 8192 } });
  // every evicted token was outside the window: nothing may change
  test.each([
    ['slide', 40],
    ['slide', 128],
    ['slide', 300],
    ['evict', 33],
    ['evict', 64],
    ['evict', 100],
  ] as const)('%s, context %i: the tokens of an unlimited context', async (overflow, contextSize) => {
    // a step of n tokens needs the window before its first one
    const batchSize = Math.min(64, contextSize - 32);
    await using model = await loadModel(await windowed(), { context: contextSize, batchSize, maxSessions: 2 });
    await using endless = await loadModel(await windowed(), { context: 4096, maxSessions: 1 });
    const maxTokens = testCoverage === 'full' ? 700 : 360;
    for (const prompt of [ids(5), ids(contextSize + 70, 3)]) {
      const options = { ...drawn, maxTokens };
      const result = await model.generate(prompt, { ...options, overflow }).result();
      expect(result.tokens).toEqual(await tokensOf(endless, prompt, options));
      expect([result.finishReason, result.promptTokens, result.droppedTokens]).toEqual(['length', prompt.length, 0]);
      // computed less evicted
      const numLeft = prompt.length + maxTokens - 1 - result.evictedTokens;
      expect(numLeft).toBeLessThanOrEqual(contextSize);
      expect(numLeft).toBeGreaterThanOrEqual(overflow === 'evict' ? contextSize : contextSize / 2);
    }
    expect(model.metrics().cache.numUsedBlocks).toBe(0);
  });
});

test('a model without a sliding window is affected by evictions', async () => {
  await using model = await loadModel(await tinyFolder(), { context: 40, maxSessions: 1 });
  await using endless = await loadModel(await tinyFolder(), { context: 512, maxSessions: 1 });
  const options = { ...drawn, maxTokens: 120 };
  const tokens = await tokensOf(model, ids(5), { ...options, overflow: 'slide' });
  const expected = await tokensOf(endless, ids(5), options);
  expect(tokens.slice(0, 35)).toEqual(expected.slice(0, 35));
  expect(tokens).not.toEqual(expected);
});

const [contextSize, numGenerated] = testCoverage === 'full' ? [256, 1200] : [128, 200];

describe('the demo model', () => {
  test.each(['slide', 'evict'] as const)(
    '%s: generates far beyond its context in the same memory',
    async (overflow) => {
      const events: EngineEvent[] = [];
      await using model = await loadModel(demoModelUrl, {
        context: contextSize,
        maxSessions: 1,
        threads: 1,
        onEvent: (event) => void events.push(event),
      });
      using session = model.createSession();
      let maxUsedBlocks = 0;
      const parts: string[] = [];
      for await (const { text } of session.generate('The old man', { ...greedy, overflow, maxTokens: numGenerated })) {
        parts.push(text);
        maxUsedBlocks = Math.max(maxUsedBlocks, model.metrics().cache.numUsedBlocks);
      }
      expect(parts).toHaveLength(numGenerated);
      expect(maxUsedBlocks).toBe(contextSize / 64);
      const { numEvictedTokens, numCopiedBlocks } = model.metrics().cache;
      expect(numEvictedTokens).toBeGreaterThan(numGenerated - contextSize - 44);
      expect(numCopiedBlocks).toBe(0);
      expect(session.tokens.length).toBeGreaterThan(numGenerated);
      let sum = 0;
      for (const event of events) if (event.kind === 'evicted') sum += event.numTokens;
      expect(sum).toBe(numEvictedTokens);
    },
  );
});

describe('policies at the end of the context', () => {
  test('stop ends the answer, error fails, the others continue; unknown ones are rejected', async () => {
    await using model = await loadModel(await tinyFolder(), { context: 32 });
    for (const overflow of ['stop', 'truncate-start', 'truncate-middle'] as const) {
      const result = await model.generate(ids(5), { ...greedy, overflow }).result();
      expect([result.finishReason, result.tokens.length]).toEqual(['context', 27]);
    }
    const seen: number[] = [];
    const run = async (): Promise<void> => {
      for await (const { tokenId } of model.generate(ids(5), { ...greedy, overflow: 'error' })) seen.push(tokenId);
    };
    await expect(run()).rejects.toThrow(CapacityError);
    expect(seen).toHaveLength(27);
    // an answer that fits the context is not affected
    expect(await tokensOf(model, ids(5), { ...greedy, overflow: 'error', maxTokens: 27 })).toEqual(seen);
    await expect(tokensOf(model, ids(40), { ...greedy, overflow: 'stop' })).rejects.toThrow(CapacityError);
    await expect(tokensOf(model, ids(4), { overflow: 'no' as never })).rejects.toThrow(ArgumentError);
  });

  test.each([2, 3, 4, 5, 8, 17])('contexts of %i tokens are never exceeded', async (contextSize) => {
    await using model = await loadModel(await tinyFolder(), { context: contextSize });
    for (const overflow of ['slide', 'evict'] as const) {
      const result = await model.generate(ids(30), { ...greedy, overflow, maxTokens: 50 }).result();
      expect(result.tokens).toHaveLength(50);
      expect(30 + 49 - result.evictedTokens).toBeLessThanOrEqual(contextSize);
    }
  });

  test('a prompt that diverges from an evicted context is computed from the start', async () => {
    await using model = await loadModel(await tinyFolder(), {
      context: 64,
      maxSessions: 1,
      kvCache: { prefixSharing: false },
    });
    using session = model.createSession();
    const first = await session.generate(ids(50), { ...greedy, overflow: 'slide', maxTokens: 60 }).result();
    const other = ids(50).with(45, 1);
    const again = await session.generate(other, { ...greedy, maxTokens: 10 }).result();
    expect(again.cachedTokens).toBe(0);
    session.reset();
    expect(again.tokens).toEqual((await session.generate(other, { ...greedy, maxTokens: 10 }).result()).tokens);
    // a prompt that continues at the end of the context reuses it
    session.reset();
    const long = await session.generate(ids(50), { ...greedy, overflow: 'slide', maxTokens: 60 }).result();
    expect(long.tokens).toEqual(first.tokens);
    const all = [...ids(50), ...first.tokens, 3];
    const more = await session.generate(all, { ...greedy, overflow: 'slide', maxTokens: 5 }).result();
    expect(more.cachedTokens).toBe(109);
  });
});

describe('resume', () => {
  const options: readonly (readonly [string, GenerateOptions])[] = [
    ['greedy', greedy],
    ['drawn', drawn],
    ['penalties', { ...drawn, penaltyWindow: 12, repetitionPenalty: 1.2, presencePenalty: 0.3 }],
    ['beyond the context', { ...drawn, overflow: 'slide' }],
    ['beyond the context, by tokens', { ...drawn, overflow: 'evict' }],
  ];

  test.each(options)('%s: the parts add up to one uninterrupted generation', async (_name, sampling) => {
    await using model = await loadModel(await tinyFolder(), { context: 64, maxSessions: 1 });
    const whole = await tokensOf(model, ids(9), { ...sampling, maxTokens: 55 });
    using session = model.createSession();
    expect(() => session.resume()).not.toThrow();
    await expect(session.resume().result()).rejects.toThrow(ArgumentError);
    const parts: number[] = [];
    parts.push(...(await session.generate(ids(9), { ...sampling, maxTokens: 20 }).result()).tokens);
    parts.push(...(await session.resume({ maxTokens: 1 }).result()).tokens);
    // canceled after two tokens
    for await (const { tokenId } of session.resume()) if (parts.push(tokenId) === 23) break;
    const last = await session.resume({ maxTokens: 32 }).result();
    parts.push(...last.tokens);
    expect(parts).toEqual(whole);
    expect([last.promptTokens, last.cachedTokens]).toEqual([32, 31]);
  });

  test('another seed draws other tokens; a fork does not affect its origin', async () => {
    await using model = await loadModel(await tinyFolder(), { context: 256, maxSessions: 2 });
    using session = model.createSession();
    await session.generate(ids(9), { ...drawn, maxTokens: 20 }).result();
    using fork = session.fork();
    const other = await fork.resume({ seed: 99, maxTokens: 30 }).result();
    const own = await session.resume({ maxTokens: 30 }).result();
    expect(other.tokens).not.toEqual(own.tokens);
    const whole = await tokensOf(model, ids(9), { ...drawn, maxTokens: 50 }).catch((error: unknown) => error);
    expect(whole).toBeInstanceOf(CapacityError); // two sessions are open
    fork.dispose();
    expect((await tokensOf(model, ids(9), { ...drawn, maxTokens: 50 })).slice(20)).toEqual(own.tokens);
  });

  test('held-back text is emitted later, and stop sequences are found across parts', async () => {
    await using model = await loadModel(demoModelUrl, { context: 256, maxSessions: 1 });
    const whole = await model.generate('The old man', { ...greedy, maxTokens: 24 }).result();
    const stop = [whole.text.slice(20, 32)];
    using session = model.createSession();
    const pieces: string[] = [];
    let count = 0;
    for await (const { text } of session.generate('The old man', { ...greedy, stop })) {
      pieces.push(text);
      if (++count === 4) break;
    }
    const rest = await session.resume().result();
    expect(rest.finishReason).toBe('stop');
    expect(pieces.join('') + rest.text).toBe(whole.text.slice(0, whole.text.indexOf(stop[0]!)));
  });
});
