/**
 * Every attention policy on trained models: it generates text, and with nothing skipped the text of dense attention.
 */
import { createWasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import type { Backend } from '@winnow/ops';
import { sampled, sharedDataPath, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type LoadOptions, type Model } from '../../../src/index.js';
import { inMemory } from '../../support/in-memory.js';

let backend: Backend;
beforeAll(async () => {
  backend = await createWasmBackend({ numThreads: 1 });
});
afterAll(() => backend.dispose());

const contextSize = 256;
/** More tokens than the budgets below. */
const [numPromptTokens, numGenerated] = testCoverage === 'full' ? [120, 24] : [80, 6];
const text =
  'Once upon a time there was a little girl who had a red ball. She liked to play in the park with her dog. ';
const prompt = text.repeat(2);

/** Policies of either phase with budgets smaller than the prompt. */
const sparse = [
  'dense',
  'oracle-topk:k=24',
  'subquadratic:window=32,block=16',
  'streaming:window=32,sinks=4',
  'prefill=h2o:chunk=32,local=8,heavy=8',
  'decode=sparq:rank=4,topk=24',
  'decode=sparq:rank=32,topk=64', // as published; larger than the heads of the small models
  'decode=page-topk:budget=2,page=16,window=16,sinks=2',
  'decode=page-topk:page=16,epsilon=0.2',
];

/** The same policies with nothing skipped, for each phase that they support. */
const keepingAll = [
  'prefill=oracle-topk:k=256',
  'decode=oracle-topk:k=256',
  'prefill=subquadratic:window=256,landmarks=off',
  'decode=subquadratic:window=256,landmarks=off',
  'prefill=streaming:window=256,sinks=0',
  'decode=streaming:window=256,sinks=0',
  'prefill=streaming:window=1,sinks=256',
  'decode=streaming:window=1,sinks=256',
  'prefill=h2o:chunk=256',
  'decode=sparq:rank=1,topk=256',
  'decode=sparq:rank=1024,topk=256,layout=both,grouped=false',
  'decode=page-topk:budget=all,page=16',
  'decode=page-topk:budget=16,page=16,window=1,sinks=0',
];

/** The phases in which a policy is not dense. */
const phasesOf = (attention: string): readonly ('prefill' | 'decode')[] =>
  (['prefill', 'decode'] as const).filter(
    (phase) => attention.startsWith(phase) || !/^(prefill|decode)=/.test(attention),
  );

const models: Record<string, URL | string | undefined> = {
  'the demo model': demoModelUrl,
  ...Object.fromEntries(
    ['stories260K', 'babyllama-tok105', 'babyllama-tok361'].map((name) => [
      name,
      sharedDataPath('data', 'models', name, `${name}.F32.gguf`),
    ]),
  ),
};

for (const [index, [name, path]] of Object.entries(models).entries()) {
  // the first model runs every policy; the others, with other head sizes, divide the policies among them
  const [step, first] = index === 0 ? [1, 0] : [3, index - 1];
  const isMissing = path === undefined;
  describe.skipIf(isMissing)(`${name}${isMissing ? ' (needs ../shared/data/models)' : ''}`, () => {
    const files = isMissing ? '' : inMemory(path);
    const load = (attention: LoadOptions['attention']): Promise<Model> =>
      loadModel(files, {
        backend,
        context: contextSize,
        maxSessions: 1,
        attention: attention as string,
      });
    let ids: readonly number[];
    let dense: Float32Array;
    const logprobsOf = async (model: Model, phase: 'prefill' | 'decode'): Promise<Float32Array> => {
      const [values] = await model.logprobs(ids, { positions: [ids.length - 1], phase });
      return values as Float32Array;
    };
    beforeAll(async () => {
      await using model = await load('dense');
      ids = [...model.encodePrompt(prompt)].slice(0, numPromptTokens);
      dense = await logprobsOf(model, 'prefill');
    });

    test.each(sampled(sparse, step, first))('%s generates text', async (attention) => {
      await using model = await load(attention);
      const { tokens, text: answer } = await model
        .generate(ids, { temperature: 0, maxTokens: numGenerated, ignoreEos: true })
        .result();
      expect(tokens).toHaveLength(numGenerated);
      expect(answer).toMatch(/[a-z]/i);
      for (const phase of phasesOf(attention)) {
        const values = await logprobsOf(model, phase);
        expect(values.every((value) => value <= 0 && !Number.isNaN(value))).toBe(true);
        expect(values.reduce((sum, value) => sum + Math.exp(value), 0)).toBeCloseTo(1, 3);
      }
    });

    test.each(sampled(keepingAll, step, first))('%s skips nothing and equals dense', async (attention) => {
      await using model = await load(attention);
      for (const phase of phasesOf(attention)) {
        const values = await logprobsOf(model, phase);
        // sums in another order
        expect(Math.max(...values.map((value, id) => Math.abs(value - (dense[id] as number))))).toBeLessThan(2e-3);
      }
    });
  });
}

describe('layers', () => {
  const demo = inMemory(demoModelUrl);
  const policy = 'streaming:window=8,sinks=1';
  const numLayers = 6; // the demo model has six layers
  const ids: number[] = [];
  const results = new Map<string, Float32Array>();
  const at = async (attention: string): Promise<Float32Array> => {
    const known = results.get(attention);
    if (known !== undefined) return known;
    await using model = await loadModel(demo, { backend, context: contextSize, maxSessions: 1, attention });
    if (ids.length === 0) ids.push(...model.encodePrompt(prompt).slice(0, 60));
    const [values] = await model.logprobs(ids, { positions: [ids.length - 1] });
    results.set(attention, values as Float32Array);
    return values as Float32Array;
  };
  afterAll(() => results.clear());

  test.each([
    `prefill=${policy};decode=${policy};dense-first=${numLayers}`,
    `prefill=${policy};dense-first=2;dense-last=${numLayers - 2}`,
    `prefill=${policy};layers=0-${numLayers - 1}:dense`,
  ])('%s is dense in all of them', async (attention) => {
    expect(await at(attention)).toEqual(await at('dense'));
  });

  test('dense first and last layers equal overrides of the same layers', async () => {
    const ends = await at(`prefill=${policy};dense-first=1;dense-last=2`);
    const overrides = await at(`prefill=${policy};layers=0:dense;layers=4-5:dense`);
    const middle = await at(`layers=1-3/prefill:${policy}`);
    expect(ends).toEqual(overrides);
    expect(ends).toEqual(middle);
    expect(ends).not.toEqual(await at('dense'));
    expect(ends).not.toEqual(await at(`prefill=${policy}`));
  });

  test('every single layer has its own policy', async () => {
    const all = [await at('dense')];
    for (let layer = 0; layer < numLayers; layer++) all.push(await at(`layers=${layer}/prefill:${policy}`));
    expect(new Set(all.map((values) => values.join())).size).toBe(numLayers + 1);
  });
});
