/** Speculative decoding by lookup gives the tokens of plain decoding, in fewer steps, and leaves no trace of rejected drafts. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { memorySink, memorySource } from '@winnow/bytes';
import { ArgumentError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import {
  loadModel,
  type GeneratedToken,
  type GenerateOptions,
  type Generation,
  type GenerationResult,
  type LoadOptions,
  type Model,
} from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { inMemory } from '../support/in-memory.js';

const pathOf = (name: string): string => archPath(name, 'model.gguf') as string;
const greedy = { speculative: 'off', temperature: 0, ignoreEos: true, maxTokens: 60 } as const;
const drawn = {
  speculative: 'off',
  temperature: 0.5,
  topK: 0,
  topP: 1,
  minP: 0,
  ignoreEos: true,
  seed: 7,
  maxTokens: 60,
} as const;
/** Text that repeats itself with variations: some drafts are right, others wrong. */
const prompt = Array.from({ length: 120 }, (_, index) => (index % 23 === 5 ? index : ((index % 11) * 7) % 190));
const lookup = { speculative: 'lookup' } as const;

/** Texts of few different tokens, in which drafts are right as often as they are wrong. */
const fewTokens: GenerateOptions = { ...drawn, temperature: 1, grammar: 'root ::= [a-d]+' };

/** By this clock a step takes the same time whatever its number of tokens, so that long drafts always pay off. */
function steadyClock(): () => number {
  let ms = 0;
  return () => ms++;
}

async function withModel(
  use: (model: Model) => Promise<void>,
  options: LoadOptions = {},
  name = 'llama',
): Promise<void> {
  const numThreads = 1;
  const createBackend = () => createWasmBackend({ numThreads, native: false, maxMemoryBytes: 2 ** 27 });
  const kvCache = { prefixSharing: false, ...options.kvCache };
  const model = await loadModel(inMemory(pathOf(name)), {
    ...{ context: 256, speculative: 'auto', now: steadyClock(), createBackend, ...options },
    kvCache,
  });
  try {
    await use(model);
  } finally {
    await model.dispose();
  }
}

async function collect(generation: Generation): Promise<readonly GeneratedToken[]> {
  const tokens: GeneratedToken[] = [];
  for await (const token of generation) tokens.push(token);
  return tokens;
}

/** The result apart from times and drafts. */
function comparable({ timings: _timings, speculation: _speculation, ...result }: GenerationResult): object {
  return result;
}

/** Compares tokens, texts, log-probabilities and results of both, and returns the number of drafted tokens. */
async function expectEqual(model: Model, options: GenerateOptions, text = prompt): Promise<number> {
  const plain = model.generate(text, { ...options, speculative: 'off' });
  const drafted = model.generate(text, { ...options, ...lookup });
  expect(await collect(drafted)).toEqual(await collect(plain));
  const result = await drafted.result();
  expect(comparable(result)).toEqual(comparable(await plain.result()));
  return result.speculation?.numDraftedTokens ?? 0;
}

describe('the tokens, texts and log-probabilities of plain decoding', () => {
  const settings: Readonly<Record<string, GenerateOptions>> = {
    greedy,
    drawn,
    'top-k, top-p, min-p': { ...drawn, topK: 20, topP: 0.9, minP: 0.02 },
    penalties: { ...drawn, repetitionPenalty: 1.3, presencePenalty: 0.2, frequencyPenalty: 0.1, penaltyWindow: 9 },
    'log-probabilities': { ...greedy, numTopLogprobs: 3 },
    'end tokens': { ...drawn, ignoreEos: false },
    grammar: fewTokens,
    'grammar with states': { ...fewTokens, grammar: 'root ::= ("ab" | "bca" | "cd" | "dab")+' },
    'stop sequences': { ...fewTokens, stop: ['ad', 'bbb'] },
  };
  test.each(Object.keys(settings))('%s', (name) =>
    withModel(async (model) => {
      expect(await expectEqual(model, settings[name] as GenerateOptions)).toBeGreaterThan(0);
    }),
  );

  const caches: Readonly<Record<string, LoadOptions>> = {
    'decode policy': { attention: 'decode=streaming:window=32,sinks=4', speculative: 'lookup' },
    'streaming in both phases': { attention: 'streaming:window=32,sinks=4' },
    'one session': { maxSessions: 1, kvCache: { dtype: 'q8_0' }, quantize: 'q8_0' },
    tiers: { kvCache: { budget: 2 ** 19, offload: { memory: 2 ** 22 } } },
    'attention mass': { kvCache: { eviction: 'least-attended' } },
  };
  test.each(Object.keys(caches))('%s', (name) =>
    withModel(async (model) => {
      await expectEqual(model, greedy);
      expect(await expectEqual(model, fewTokens)).toBeGreaterThan(10);
    }, caches[name]),
  );

  for (const name of ['lfm2', 'qwen35', 'granitehybrid', 'mamba']) {
    const isMissing = archPath(name, 'model.gguf') === undefined;
    test.skipIf(isMissing)(`recurrent states: ${name}${isMissing ? ' (needs ../shared/data/goldens)' : ''}`, () =>
      withModel(async (model) => expect(await expectEqual(model, fewTokens)).toBeGreaterThan(10), {}, name),
    );
  }

  test('a context that becomes full, and one that slides', () =>
    withModel(
      async (model) => {
        for (const overflow of ['stop', 'slide', 'evict'] as const) {
          expect(await expectEqual(model, { ...greedy, maxTokens: 90, overflow })).toBeGreaterThan(0);
        }
      },
      { context: 160 },
    ));
});

describe('a prompt after an answer, under policies whose prompts keep data of their own', () => {
  const policies = [
    'prefill=subquadratic:window=16,block=8',
    'prefill=h2o:chunk=16,local=4,heavy=4',
    'prefill=streaming:window=16,sinks=2,delta=16',
  ];
  test.each(policies)('%s: rejected drafts leave no trace', (attention) =>
    withModel(
      async (model) => {
        const turns = async (options: GenerateOptions): Promise<readonly unknown[]> => {
          using session = model.createSession();
          const first = await session.generate(prompt, { ...fewTokens, ...options }).result();
          const text = [...session.tokens, ...prompt.slice(0, 50)];
          const second = session.generate(text, { ...greedy, ...options, maxTokens: 20, numTopLogprobs: 2 });
          return [first.tokens, await collect(second)];
        };
        const plain = await turns({ speculative: 'off' });
        const { numDraftedTokens, numAcceptedTokens } = model.metrics().speculation;
        expect(numDraftedTokens).toBe(0);
        expect(await turns(lookup)).toEqual(plain);
        const counts = model.metrics().speculation;
        expect(counts.numAcceptedTokens).toBeGreaterThan(numAcceptedTokens);
        expect(counts.numDraftedTokens).toBeGreaterThan(counts.numAcceptedTokens);
      },
      { attention },
    ),
  );
});

test('saves steps where a text repeats itself', () =>
  withModel(async (model) => {
    const { numSteps } = model.metrics().steps;
    const { speculation, tokens } = await model.generate(prompt, { ...greedy, ...lookup, maxTokens: 120 }).result();
    const steps = model.metrics().steps.numSteps - numSteps;
    const prefill = Math.ceil(prompt.length / 64);
    expect(speculation?.numAcceptedTokens).toBeGreaterThan(5);
    expect(steps).toBe(prefill + tokens.length - 1 - speculation!.numAcceptedTokens);
    expect(model.metrics().speculation).toEqual(speculation);
  }));

describe('a caller that stops in the middle of an accepted draft', () => {
  /** Takes `count` tokens, then leaves the loop. */
  async function take(generation: Generation, count: number): Promise<readonly GeneratedToken[]> {
    const taken: GeneratedToken[] = [];
    for await (const token of generation) {
      taken.push(token);
      if (taken.length === count) break;
    }
    return taken;
  }

  /** Two likely tokens after each, so that drafts are often right. */
  const varied = { ...drawn, temperature: 1, topK: 2 };

  /** Numbers of tokens after which the step has further accepted ones. */
  async function countsInDrafts(model: Model): Promise<readonly number[]> {
    const steps: number[] = [];
    for await (const _ of model.generate(prompt, { ...varied, ...lookup })) steps.push(model.metrics().steps.numSteps);
    return steps.flatMap((step, index) => (steps[index + 1] === step ? [index + 1] : []));
  }

  test('continues like plain decoding', () =>
    withModel(async (model) => {
      const whole = await collect(model.generate(prompt, varied));
      const counts = await countsInDrafts(model);
      expect(counts.length).toBeGreaterThan(2);
      for (const count of counts) {
        using session = model.createSession();
        const first = await take(session.generate(prompt, { ...varied, ...lookup }), count);
        expect(session.tokens).toEqual([...prompt, ...first.slice(0, -1).map(({ tokenId }) => tokenId)]);
        const rest = await collect(session.resume({ ...lookup, maxTokens: varied.maxTokens - count }));
        expect([...first, ...rest].map(({ tokenId }) => tokenId)).toEqual(whole.map(({ tokenId }) => tokenId));
      }
    }));

  test('saves what it has seen', () =>
    withModel(async (model) => {
      const whole = (await model.generate(prompt, varied).result()).tokens;
      const [count = 0] = await countsInDrafts(model);
      using session = model.createSession();
      const seen: number[] = [];
      let rest: readonly number[] = [];
      for await (const { tokenId } of session.generate(prompt, { ...varied, ...lookup })) {
        seen.push(tokenId);
        if (seen.length !== count) continue;
        const sink = memorySink();
        await session.save(sink);
        using restored = await model.restoreSession(memorySource(sink.toBytes()));
        rest = (await restored.resume({ ...lookup, maxTokens: varied.maxTokens - count }).result()).tokens;
      }
      expect([...seen.slice(0, count), ...rest]).toEqual(whole);
    }));
});

test('sequences with different drafts share steps', () =>
  withModel(
    async (model) => {
      const prompts = [prompt, prompt.slice(7), prompt.slice(30), prompt.toReversed()];
      const run = (options: GenerateOptions) =>
        Promise.all(prompts.map((text) => model.generate(text, { ...drawn, ...options }).result()));
      const alone: (readonly number[])[] = [];
      for (const text of prompts) alone.push((await model.generate(text, drawn).result()).tokens);
      const { numSharedSteps } = model.metrics().steps;
      const together = await run(lookup);
      expect(together.map(({ tokens }) => tokens)).toEqual(alone);
      expect(model.metrics().steps.numSharedSteps).toBeGreaterThan(numSharedSteps);
      expect(model.metrics().speculation.numAcceptedTokens).toBeGreaterThan(0);
    },
    { kvCache: { capacity: 1024 } },
  ));

describe('options', () => {
  const selecting =
    'speculative: expected off | auto, since drafts need decode attention that is dense or streaming, not page-topk, got lookup';
  const variantSteps = /off \| auto, since the backend wasm\S* computes no batch-invariant steps, got lookup/;

  test('an unknown kind', () =>
    withModel(async (model) => {
      const unknown = model.generate(prompt, { speculative: 'guess' as 'lookup' }).result();
      await expect(unknown).rejects.toThrow(ArgumentError);
    }));

  test('a backend whose steps are not batch-invariant: lookup is an error', () =>
    withModel(async (model) => expect(model.generate(prompt, lookup).result()).rejects.toThrow(variantSteps), {
      createBackend: async () => ({ ...(await createWasmBackend({ numThreads: 1 })), isBatchInvariant: false }),
    }));

  test('a decode policy that selects keys by what later tokens change: lookup is an error, auto is off', () =>
    withModel(
      async (model) => {
        await expect(model.generate(prompt, { ...greedy, ...lookup }).result()).rejects.toThrow(selecting);
        const { speculation } = await model.generate(prompt, { ...greedy, speculative: 'auto' }).result();
        expect(speculation).toBeUndefined();
      },
      { attention: 'decode=page-topk:budget=4' },
    ));

  test('a model loaded for drafts that its steps cannot verify is rejected before its weights are loaded', async () => {
    const createBackend = async () => ({ ...(await createWasmBackend({ numThreads: 1 })), isBatchInvariant: false });
    const refused: readonly (readonly [LoadOptions, string | RegExp])[] = [
      [{ attention: 'decode=page-topk:budget=4' }, selecting],
      [{ createBackend }, variantSteps],
    ];
    for (const [options, message] of refused) {
      const loading = loadModel(inMemory(pathOf('llama')), { context: 256, ...lookup, ...options });
      await expect(loading).rejects.toThrow(message);
    }
  });

  test('a model loaded without drafts: lookup is an error', async () => {
    const needed = 'speculative: expected off | auto, since the model was loaded without speculative, got lookup';
    await withModel(async (model) => expect(model.generate(prompt, lookup).result()).rejects.toThrow(needed), {
      speculative: 'off',
    });
  });
});
