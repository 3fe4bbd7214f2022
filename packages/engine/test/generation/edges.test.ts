/** Sizes at their limits: contexts, batches, vocabularies. */
import { createReferenceBackend } from '@winnow/ops';
import { ArgumentError, CapacityError, FormatError, WinnowError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { loadModel, type GenerateOptions, type Model } from '../../src/index.js';
import { tinyFolder, watchedBackend, wordTokenizer } from '../support/tiny-model.js';

const greedy = { temperature: 0, ignoreEos: true } as const;
const ids = (length: number): number[] => Array.from({ length }, (_, index) => (index * 7) % 20);

async function tokensOf(
  model: Model,
  prompt: readonly number[],
  options: GenerateOptions = {},
): Promise<readonly number[]> {
  return (await model.generate(prompt, { ...greedy, ...options }).result()).tokens;
}

describe('context', () => {
  test.each([2, 3, 63, 64, 65, 100, 128, 129])(
    '%i tokens: used to the last one, with the same tokens',
    async (contextSize) => {
      await using model = await loadModel(await tinyFolder(), { context: contextSize });
      await using large = await loadModel(await tinyFolder(), { context: 512 });
      // the longest prompt that fits leaves room for one token
      const full = await model.generate(ids(contextSize - 1), greedy).result();
      expect([full.tokens.length, full.finishReason]).toEqual([1, 'context']);
      const one = await model.generate(ids(1), greedy).result();
      expect([one.tokens.length, one.finishReason]).toEqual([contextSize - 1, 'context']);
      expect(one.tokens).toEqual(await tokensOf(large, ids(1), { maxTokens: contextSize - 1 }));
      await expect(tokensOf(model, ids(contextSize))).rejects.toThrow(CapacityError);
      // log-probabilities need no room for another token
      expect(await model.logprobs(ids(contextSize))).toHaveLength(1);
      await expect(model.logprobs(ids(contextSize + 1))).rejects.toThrow(CapacityError);
    },
  );

  test('one token: no prompt fits, whatever the policy', async () => {
    await using model = await loadModel(await tinyFolder(), { context: 1 });
    for (const overflow of ['error', 'truncate-start', 'truncate-middle'] as const) {
      await expect(tokensOf(model, ids(1), { overflow })).rejects.toThrow(CapacityError);
      await expect(tokensOf(model, ids(5), { overflow })).rejects.toThrow(CapacityError);
    }
    expect(await model.logprobs([3])).toHaveLength(1);
  });

  test.each([1, 2, 3, 64, 1000])('batches of %i tokens give the same tokens', async (batchSize) => {
    await using model = await loadModel(await tinyFolder(), { context: 100, batchSize });
    await using usual = await loadModel(await tinyFolder(), { context: 100 });
    expect(await tokensOf(model, ids(70), { maxTokens: 20 })).toEqual(
      await tokensOf(usual, ids(70), { maxTokens: 20 }),
    );
  });

  test('impossible sizes are typed errors', async () => {
    for (const options of [
      { context: 2 ** 53 - 1 },
      { context: 2 ** 40, batchSize: 2 ** 40 },
      { maxSessions: 2 ** 50 },
    ]) {
      const error = await loadModel(await tinyFolder(), options).catch((reason: unknown) => reason);
      expect(WinnowError.isInstance(error), String(error)).toBe(true);
    }
  });
});

describe('vocabulary', () => {
  test.each([1, 2, 5, 39, 40, 63, 64, 65])('%i tokens: every sampling method works', async (vocabSize) => {
    await using model = await loadModel(await tinyFolder({ vocabSize }));
    const ways: GenerateOptions[] = [
      {},
      { temperature: 0 },
      { topK: 0 },
      { topK: 1000 },
      { topP: 0.01 },
      { minP: 1 },
      { presencePenalty: 1e308, penaltyWindow: -1 },
      { frequencyPenalty: -1e308 },
      { repetitionPenalty: 5, penaltyWindow: 2 ** 53 - 1 },
      { repetitionPenalty: 5, penaltyWindow: 1 },
      { temperature: 1e-300 },
      { temperature: 1e300 },
    ];
    for (const way of ways) {
      const numTopLogprobs = Math.min(vocabSize, 64);
      const generation = model.generate([0], { seed: 1, ...way, ignoreEos: true, maxTokens: 5, numTopLogprobs });
      let count = 0;
      for await (const { tokenId, logprob, topLogprobs } of generation) {
        count++;
        expect(tokenId).toBeLessThan(vocabSize);
        expect(logprob).toBeLessThanOrEqual(1e-5);
        expect(topLogprobs).toHaveLength(numTopLogprobs);
      }
      expect(count).toBe(5);
    }
    await expect(tokensOf(model, [0], { numTopLogprobs: Math.min(vocabSize, 64) + 1 })).rejects.toThrow(ArgumentError);
  });

  test('rows of the embedding table without a token can be sampled and have no text', async () => {
    const files = { 'tokenizer.json': wordTokenizer(['a', 'b']) };
    await using model = await loadModel(await tinyFolder({ vocabSize: 20, files }));
    const seen = await model.generate('ab', { temperature: 3, seed: 2, maxTokens: 40 }).result();
    expect(Math.max(...seen.tokens)).toBeGreaterThan(1);
    expect(seen.text).toBe(seen.tokens.map((id) => ['a', 'b'][id] ?? '').join(''));
    expect(await tokensOf(model, [19], { maxTokens: 1 })).toHaveLength(1);
  });

  test('tokens beyond the embedding table are rejected, from text and as ids', async () => {
    const files = { 'tokenizer.json': wordTokenizer(['a', 'b', 'c']) };
    await using model = await loadModel(await tinyFolder({ vocabSize: 2, files }));
    expect([...model.encodePrompt('ab')]).toEqual([0, 1]);
    expect(() => model.encodePrompt('abc')).toThrow(FormatError);
    expect(() => model.encodePrompt([2])).toThrow('prompt[0]: expected a token id below 2, got 2');
  });

  test.each([[1.5], [-1], [NaN], [2 ** 32], [20]])(
    'log-probabilities of id %d are rejected, not wrapped around',
    async (id) => {
      await using model = await loadModel(await tinyFolder());
      await expect(model.logprobs([1, id])).rejects.toThrow(`prompt[1]: expected a token id below 20, got ${id}`);
    },
  );
});

test('recommended sampling: the caller takes precedence, and `undefined` does not override it', async () => {
  const config = { do_sample: true, temperature: 1e-9, top_k: 1, top_p: null, min_p: 0.5, eos_token_id: [3, 4] };
  await using model = await loadModel(await tinyFolder({ files: { 'generation_config.json': config } }));
  expect(model.defaultSampling).toEqual({ temperature: 1e-9, topK: 1, minP: 0.5 });
  const expected = await tokensOf(model, ids(5), { maxTokens: 20 });
  const recommended = await model.generate(ids(5), { ignoreEos: true, maxTokens: 20 }).result();
  expect(recommended.tokens).toEqual(expected);
  const unset = { temperature: undefined, topK: undefined, seed: undefined } as unknown as GenerateOptions;
  const same = await model.generate(ids(5), { ...unset, ignoreEos: true, maxTokens: 20 }).result();
  expect(same.tokens).toEqual(expected);
  const hot = await model
    .generate(ids(5), { temperature: 5, topK: 0, minP: 0, seed: 1, ignoreEos: true, maxTokens: 20 })
    .result();
  expect(hot.tokens).not.toEqual(expected);
});

test.each([
  [{ do_sample: false, temperature: 0.6 }, { temperature: 0 }],
  [
    { top_k: -1, top_p: 1, repetition_penalty: 1.1 },
    { topK: 0, topP: 1, repetitionPenalty: 1.1 },
  ],
  [{ bos_token_id: 1, eos_token_id: 2, transformers_version: '4.40.0' }, {}],
  [{ temperature: null, do_sample: null, eos_token_id: null }, {}],
])('generation_config.json %o', async (config, expected) => {
  await using model = await loadModel(await tinyFolder({ files: { 'generation_config.json': config } }));
  expect(model.defaultSampling).toEqual(expected);
});

test.each([
  [{ temperature: -1 }, /generation_config\.json: temperature: expected a number from 0, found -1/],
  [{ top_k: 0.5 }, /top_k: expected an integer from 0, found 0\.5/],
  [{ top_p: 0 }, /top_p: expected a number above 0, at most 1, found 0/],
])('generation_config.json %o is rejected', async (config, message) => {
  const load = loadModel(await tinyFolder({ files: { 'generation_config.json': config } }));
  await expect(load).rejects.toThrow(message);
});

test.each([
  ['one id', 5],
  ['a list', [7, 5, 9]],
])('end tokens of generation_config.json: %s', async (_name, eos) => {
  const files = { 'generation_config.json': { eos_token_id: eos } };
  await using model = await loadModel(await tinyFolder({ files }));
  // a model with random weights reaches one of its end tokens sooner or later
  const result = await model.generate([1], { temperature: 3, topK: 0, topP: 1, minP: 0, seed: 3 }).result();
  expect(result.finishReason).toBe('eos');
  expect(result.tokens.filter((id) => [eos].flat().includes(id))).toEqual([]);
  const all = await model
    .generate([1], { temperature: 3, topK: 0, topP: 1, minP: 0, seed: 3, ignoreEos: true, maxTokens: 200 })
    .result();
  expect(all.tokens.slice(0, result.tokens.length)).toEqual(result.tokens);
  expect([eos].flat()).toContain(all.tokens[result.tokens.length]);
});

test('timings exclude what the caller does between tokens, and each step is one token', async () => {
  let now = 0;
  const { backend } = watchedBackend(createReferenceBackend(), () => void (now += 10));
  await using model = await loadModel(await tinyFolder(), { backend, now: () => now, batchSize: 4 });
  const generation = model.generate(ids(8), { ...greedy, maxTokens: 6 });
  for await (const _token of generation) now += 1000;
  const { timings } = await generation.result();
  expect(timings).toEqual({ promptMs: 20, generateMs: 50, promptTokensPerSecond: 400, tokensPerSecond: 100 });
  const single = await model.generate(ids(8), { ...greedy, maxTokens: 1 }).result();
  expect(single.timings).toMatchObject({ generateMs: 0, tokensPerSecond: 0 });
  await backend.dispose();
});
