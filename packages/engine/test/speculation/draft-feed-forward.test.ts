/** Drafts that skip FFN neurons: the output is that of all neurons. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import type { Sidecar } from '@winnow/sparse-inference';
import { fastClock, sampled } from '@winnow/test-utils';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  loadEmbeddingModel,
  loadModel,
  type FeedForwardAccess,
  type LoadOptions,
  type Model,
} from '../../src/index.js';
import { inMemory } from '../support/in-memory.js';
import { makeSidecar } from '../support/sidecars.js';

const demo = inMemory(demoModelUrl);
const prompt = 'The old man looked at the sea and said that he had never seen such a storm. The boy looked at ';
const greedy = { temperature: 0, ignoreEos: true, maxTokens: 60 } as const;

/** Calibrations that skip so many neurons that some drafts are wrong. */
const sidecars = new Map<string, Sidecar>();
const backend = createWasmBackend({ numThreads: 1 });
beforeAll(async () => {
  const traced = await loadModel(demo, { backend: await backend, context: 256, trace: { feedForward: true } });
  const access = traced.feedForward as FeedForwardAccess;
  for (const kind of ['low-rank', 'gate-threshold'] as const) {
    sidecars.set(kind, await makeSidecar(access, { kind, threshold: 0.3 }));
  }
  await traced.dispose();
});
afterAll(async () => (await backend).dispose());

async function load(options: LoadOptions): Promise<Model> {
  return loadModel(demo, { backend: await backend, context: 256, maxSessions: 1, now: fastClock(), ...options });
}

const cases = ['low-rank', 'gate-threshold'].flatMap((kind) =>
  ([undefined, 'q8_0', 'q4_0'] as const).map((quantize) => ({ kind, quantize })),
);

test.each(sampled(cases, 4, 0))(
  '$kind, $quantize: the tokens and logits of all neurons',
  async ({ kind, quantize }) => {
    const calibration = sidecars.get(kind) as Sidecar;
    const weights: LoadOptions = quantize === undefined ? {} : { quantize };
    await using plain = await load({ ...weights, speculative: 'lookup' });
    const sparsity = { calibration, use: 'drafts', maxActive: 1 } as const;
    await using model = await load({ ...weights, speculative: 'self=dense', sparsity });
    const expected = await plain.generate(prompt, { ...greedy, speculative: 'off' }).result();
    const { tokens, speculation } = await model.generate(prompt, greedy).result();
    expect(tokens).toEqual(expected.tokens);
    expect(speculation?.numAcceptedTokens).toBeGreaterThan(0);
    expect(speculation?.numDraftedTokens).toBeGreaterThan(speculation?.numAcceptedTokens as number);
    const layers = model.metrics().feedForward?.layers ?? [];
    expect(layers.length).toBeGreaterThan(0);
    for (const { activeRatio } of layers) expect(activeRatio).toBeLessThan(0.9);
    const ids = model.encodePrompt(prompt);
    const options = { positions: [3, ids.length - 1], batchSize: 1 };
    expect(await model.logprobs(ids, options)).toEqual(await plain.logprobs(ids, options));
  },
);

test('a calibration for drafts needs self=POLICY', async () => {
  const sparsity = { calibration: sidecars.get('low-rank') as Sidecar, use: 'drafts' } as const;
  await expect(load({ sparsity })).rejects.toThrow('sparsity.use: expected model');
  await expect(load({ sparsity, speculative: 'lookup' })).rejects.toThrow('sparsity.use: expected model');
  const ofModel = load({ sparsity: { ...sparsity, use: 'model' }, speculative: 'lookup' });
  await expect(ofModel).rejects.toThrow(
    'off | auto, since FFNs with sparsity.calibration select neurons for all tokens',
  );
  const embedding = loadEmbeddingModel(demo, { backend: await backend, pooling: 'mean', sparsity });
  await expect(embedding).rejects.toThrow('sparsity.use: expected model');
  const unknown = { ...sparsity, use: 'guesses' as 'drafts' };
  await expect(load({ sparsity: unknown, speculative: 'self=dense' })).rejects.toThrow('got guesses');
});
