/** Drafts by models, `self=POLICY` and `draft`, give the tokens of plain decoding, greedy and drawn. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { ArgumentError } from '@winnow/tensor';
import type { Tokenizer } from '@winnow/tokenizers';
import { fastClock, sampled } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import {
  inspectModel,
  loadModel,
  type GenerateOptions,
  type LoadOptions,
  type Model,
  type Speculative,
} from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { inMemory } from '../support/in-memory.js';

const llama = archPath('llama', 'model.gguf') as string;
const greedy = { temperature: 0, ignoreEos: true, maxTokens: 60 } as const;
const drawn = { temperature: 0.7, topK: 0, topP: 1, minP: 0, ignoreEos: true, seed: 7, maxTokens: 60 } as const;
const prompt = Array.from({ length: 90 }, (_, index) => ((index % 11) * 7 + (index % 5)) % 190);

async function load(options: LoadOptions): Promise<Model> {
  const createBackend = () => createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 27 });
  const kvCache = { prefixSharing: false, ...options.kvCache };
  return loadModel(inMemory(llama), { context: 256, now: fastClock(), createBackend, ...options, kvCache });
}

async function use(options: LoadOptions, run: (model: Model) => Promise<void>): Promise<void> {
  const model = await load(options);
  try {
    await run(model);
  } finally {
    await model.dispose();
  }
}

async function expectEqual(model: Model, speculative: Speculative, options: GenerateOptions): Promise<number> {
  const plain = await model.generate(prompt, { ...options, speculative: 'off' }).result();
  const drafted = await model.generate(prompt, { ...options, speculative }).result();
  expect(drafted.tokens).toEqual(plain.tokens);
  expect(drafted.text).toBe(plain.text);
  return drafted.speculation?.numDraftedTokens ?? 0;
}

const selfCases: Readonly<Record<string, LoadOptions>> = {
  streaming: { speculative: 'self=streaming:window=32,sinks=4' },
  sparq: { speculative: 'self=sparq:rank=8,topk=32,mean=false' },
  'q8_0 weights and cache': {
    ...{ speculative: 'self=streaming:window=64,sinks=4', quantize: 'q8_0' },
    kvCache: { dtype: 'q8_0' },
  },
  'streaming target': { speculative: 'self=streaming:window=16,sinks=1', attention: 'streaming:window=48,sinks=4' },
};

describe('self', () => {
  test.each(sampled(Object.keys(selfCases), 3))('%s: the tokens of plain decoding', (name) =>
    use(selfCases[name] as LoadOptions, async (model) => {
      expect(await expectEqual(model, 'self', greedy)).toBeGreaterThan(0);
      await expectEqual(model, 'self', drawn);
      await expectEqual(model, 'self', { ...drawn, grammar: 'root ::= [a-d]+' });
      await expectEqual(model, 'auto', greedy);
    }),
  );

  test('a draft under the policy of the target is always right', () =>
    use({ speculative: 'self=dense' }, async (model) => {
      const { speculation } = await model.generate(prompt, greedy).result();
      expect(speculation?.numAcceptedTokens).toBe(speculation?.numDraftedTokens);
      expect(speculation?.numAcceptedTokens).toBeGreaterThan(20);
    }));

  test('drafts use the last block when the pool has no other one', () =>
    use({ speculative: 'self=dense', context: 128, maxSessions: 2 }, async (model) => {
      using other = model.createSession();
      await other.generate(prompt, { ...greedy, maxTokens: 1 }).result(); // 2 of 3 blocks
      expect(model.metrics().cache.numBlocks).toBe(3);
      let numTokens = 0;
      for await (const _ of model.generate(prompt.slice(0, 40), greedy)) if (++numTokens === 24) break;
      // the first ones measure the cost of steps
      expect(numTokens - model.metrics().speculation.numAcceptedTokens).toBeLessThan(13);
    }));

  test('sessions that draft at the same time get the answers that they get alone', () =>
    use({ speculative: 'self=streaming:window=32,sinks=4', kvCache: { capacity: 1024 } }, async (model) => {
      const prompts = [prompt, prompt.slice(9), prompt.toReversed()];
      const alone: (readonly number[])[] = [];
      for (const text of prompts) {
        alone.push((await model.generate(text, { ...greedy, speculative: 'off' }).result()).tokens);
      }
      const together = await Promise.all(prompts.map((text) => model.generate(text, greedy).result()));
      expect(together.map(({ tokens }) => tokens)).toEqual(alone);
    }));

  test('policies with data of their own, recurrent models, and no policy are rejected', async () => {
    await expect(load({ speculative: 'self' })).rejects.toThrow('expected self=POLICY');
    await expect(load({ speculative: 'self=page-topk:budget=4' })).rejects.toThrow(ArgumentError);
    for (const name of ['granitehybrid', 'falcon-h1']) {
      const recurrent = inMemory(archPath(name, 'model.gguf') as string);
      await expect(loadModel(recurrent, { speculative: 'self=streaming:window=32' })).rejects.toThrow('recurrent');
    }
  });

  test('generations name no other policy than that of the model', () =>
    use({ speculative: 'self=streaming:window=32' }, async (model) => {
      const other = model.generate(prompt, { ...greedy, speculative: 'self=streaming:window=64' }).result();
      await expect(other).rejects.toThrow('speculative');
    }));
});

describe('draft', () => {
  test('the tokens of plain decoding, and none of the draft model is left open', async () => {
    const draftModel = await load({ quantize: 'q8_0', maxSessions: 1 });
    await use({ draftModel }, async (model) => {
      expect(await expectEqual(model, 'draft', greedy)).toBeGreaterThan(5);
      await expectEqual(model, 'draft', drawn);
    });
    expect(draftModel.metrics().numSessions).toBe(0);
    await draftModel.dispose();
  });

  test('without a model it is an error', () => expect(load({ speculative: 'draft' })).rejects.toThrow('draftModel'));
});

describe('the model that drafts', () => {
  test('a model with too few sessions drafts for some, and the others decode without', async () => {
    const draftModel = await load({ quantize: 'q8_0', maxSessions: 1, context: 200 });
    await use({ draftModel, kvCache: { capacity: 1024 } }, async (model) => {
      const prompts = [prompt, prompt.slice(9), prompt.toReversed()];
      const run = (speculative: Speculative) =>
        Promise.all(prompts.map((text) => model.generate(text, { ...greedy, speculative }).result()));
      const plain = await run('off');
      const drafted = await run('draft');
      expect(drafted.map(({ tokens }) => tokens)).toEqual(plain.map(({ tokens }) => tokens));
      const counts = drafted.map(({ speculation }) => speculation?.numDraftedTokens);
      expect(counts.toSorted()).toEqual([0, 0, expect.any(Number)]);
    });
    await draftModel.dispose();
  });

  test('its model computes the prompt with that of the target, not between tokens', async () => {
    const draftModel = await load({ quantize: 'q8_0', maxSessions: 1 });
    await use({ draftModel, maxSessions: 1 }, async (model) => {
      for await (const _ of model.generate(prompt, greedy)) break;
      expect(draftModel.metrics().steps.numTokens).toBeGreaterThan(prompt.length);
      const { numTokens } = draftModel.metrics().steps;
      await model.generate(prompt, { ...greedy, maxTokens: 1 }).result();
      expect(draftModel.metrics().steps.numTokens).toBe(numTokens);
      // once aborted, the model that drafts computes no more
      const stop = new AbortController();
      const { signal } = stop;
      const generation = model.generate(prompt.toReversed(), {
        ...greedy,
        signal,
        onPromptProgress: () => stop.abort(),
      });
      await expect(generation.result()).rejects.toThrow('abort');
    });
    await draftModel.dispose();
  });

  test('inspectModel plans for its drafts, as loadModel does', async () => {
    await use({ maxSessions: 1 }, async (draftModel) => {
      const options = { context: 256, draftModel, attention: 'prefill=streaming:window=64' };
      const { plan } = await inspectModel(inMemory(llama), options);
      await use(options, async (model) => expect(plan).toEqual(model.plan));
    });
  });

  test('a model with other tokens is an error', async () => {
    await use({}, async ({ tokenizer }) => {
      const tokenText = (id: number): string => (id === 7 ? 'other' : tokenizer.tokenText(id));
      const draftModelOf = (vocabSize: number) => ({
        ...{ tokenizer: { vocabSize, tokenText } as Tokenizer, contextSize: 9 },
        createSession: () => expect.unreachable(),
      });
      await expect(load({ draftModel: draftModelOf(3) })).rejects.toThrow('got 3 tokens');
      const sameSize = load({ draftModel: draftModelOf(tokenizer.vocabSize) });
      await expect(sameSize).rejects.toThrow('got another token 7');
    });
  });
});
