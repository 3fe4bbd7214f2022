/**
 * 10,000 greedy tokens of the demo model are the same with and without drafts: every kind of drafts, alone and in steps that sessions
 * with different kinds share, with dense and sparse attention, threads, and tiers. `npm test` takes a slice.
 */
import { createWasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import { fastClock, sampled, testCoverage } from '@winnow/test-utils';
import { expect, test } from 'vitest';
import { loadModel, type KvCacheOptions, type LoadOptions, type Model, type Speculative } from '../../src/index.js';
import { coldFilesInMemory } from '../support/in-memory.js';
import { hasNative } from '../support/native.js';

/** A text that repeats itself in part, so that some drafts are right. */
const story =
  'The old man looked at the sea and said that he had never seen such a storm. The boy looked at the old man and said that the sea was ';
const [numTexts, perText] = testCoverage === 'full' ? [16, 625] : [4, 30];
const kinds = ['lookup', 'self', 'draft', 'auto'] as const;
const targets = {
  dense: 'dense',
  'sparse decode': 'decode=streaming:window=100,sinks=4',
  sparse: 'streaming:window=100,sinks=4',
};
const weights: readonly (readonly [name: string, options: LoadOptions])[] = [
  ['f16', {}],
  ['q8_0', { quantize: 'q8_0', kvCache: { dtype: 'q8_0' } }],
  ['q4_0', { quantize: 'q4_0', kvCache: { dtype: 'f16' } }],
];
const selfPolicies = ['streaming:window=64,sinks=4', 'sparq:rank=16,topk=64,mean=false', 'dense'];

/** Weights and policies of drafts take turns. */
const setups = [...new Set([await hasNative(), false])]
  .flatMap((native) =>
    [1, 2].flatMap((numThreads) =>
      (Object.keys(targets) as (keyof typeof targets)[]).flatMap((target) =>
        (target === 'sparse decode' ? [false] : [false, true]).map((hasTiers) => ({
          native,
          numThreads,
          target,
          hasTiers,
        })),
      ),
    ),
  )
  .map((setup, index) => {
    const [dtype, options] = weights[index % weights.length] as (typeof weights)[number];
    return { ...setup, dtype, options, policy: selfPolicies[(index >> 1) % selfPolicies.length] as string };
  });

type Setup = (typeof setups)[number];

const contextSize = 1408;
const greedy = { temperature: 0, ignoreEos: true, maxTokens: perText } as const;
/** With tiers, prompts fill more than the pool; one of them does for `npm test`. */
const promptsOf = ({ hasTiers }: Setup): readonly string[] =>
  Array.from({ length: hasTiers && testCoverage !== 'full' ? 1 : numTexts }, (_, text) =>
    story.repeat(hasTiers ? 22 : 1).slice(3 * text),
  );

async function load({ native, numThreads, target, hasTiers, options, policy }: Setup, draftModel: Model) {
  const open = (kvCache: KvCacheOptions): Promise<Model> =>
    loadModel(demoModelUrl, {
      ...{ context: contextSize, maxSessions: hasTiers ? 1 : kinds.length, speculative: `self=${policy}`, draftModel },
      ...{ createBackend: () => createWasmBackend({ numThreads, native }), attention: targets[target], ...options },
      now: fastClock(),
      kvCache: { ...options.kvCache, ...kvCache, prefixSharing: false },
    });
  if (!hasTiers) return open({ capacity: contextSize * kinds.length });
  const whole = await open({});
  const blockBytes = 64 * whole.plan.kvBytesPerToken;
  await whole.dispose();
  const offload = { memory: blockBytes, folder: coldFilesInMemory };
  return open({ budget: (target === 'dense' ? 5 : 10) * blockBytes, offload });
}

async function generate(model: Model, prompt: string, speculative: Speculative): Promise<readonly number[]> {
  const { tokens, speculation } = await model.generate(prompt, { ...greedy, speculative }).result();
  expect(speculation === undefined).toBe(speculative === 'off');
  return tokens;
}

test.each(sampled(setups, 7))(
  'native: $native, $numThreads threads, $target, tiers: $hasTiers, $dtype, self=$policy',
  { timeout: 1_200_000 },
  async (setup) => {
    const draftModel = await loadModel(demoModelUrl, {
      context: contextSize,
      quantize: 'q4_0',
      maxSessions: kinds.length,
    });
    const model = await load(setup, draftModel);
    const prompts = promptsOf(setup);
    try {
      const plain: (readonly number[])[] = [];
      for (const prompt of prompts) plain.push(await generate(model, prompt, 'off'));
      for (const kind of kinds) {
        for (const [text, prompt] of prompts.entries()) {
          expect(await generate(model, prompt, kind), `${kind}, text ${text}`).toEqual(plain[text]);
        }
      }
      const { numDraftedTokens, numAcceptedTokens } = model.metrics().speculation;
      expect(numAcceptedTokens).toBeGreaterThan(0);
      expect(numDraftedTokens).toBeGreaterThan(numAcceptedTokens);
      if (setup.hasTiers) expect(model.metrics().tiers?.numDemotedTokens).toBeGreaterThan(64);
      else await expectShared(model, prompts, plain);
    } finally {
      await model.dispose();
      await draftModel.dispose();
    }
  },
);

/** Sessions with different kinds of drafts, and one without, decode at the same time. */
async function expectShared(
  model: Model,
  prompts: readonly string[],
  plain: readonly (readonly number[])[],
): Promise<void> {
  const all = ['off', ...kinds] as const;
  for (let first = 0; first < numTexts; first += kinds.length) {
    const together = prompts.slice(first, first + kinds.length);
    const kindOf = (index: number) => all[(index + first / kinds.length) % all.length] as Speculative;
    const found = await Promise.all(together.map((prompt, index) => generate(model, prompt, kindOf(index))));
    expect(found).toEqual(plain.slice(first, first + kinds.length));
  }
  expect(model.metrics().steps.numSharedSteps).toBeGreaterThan(0);
}
