/** The shared suite with the demo model on both backends. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, type Model } from '@winnow/engine';
import { createReferenceBackend } from '@winnow/ops';
import { sampled } from '@winnow/test-utils';
import { expect, test } from 'vitest';
import { createInferenceBackend } from '../src/index.js';
import { describeInferenceBackend } from '../src/testing.js';

const backends = [
  ['the WebAssembly backend', () => ({ threads: 2 })],
  ['the reference backend', () => ({ backend: createReferenceBackend() })],
] as const;

// what this package does with a model does not depend on the backend, and the reference is slow
for (const [name, backendOf] of sampled(backends, 2)) {
  let model: Model;
  describeInferenceBackend({
    name,
    async create() {
      model = await loadModel(demoModelUrl, { context: 128, ...backendOf() });
      return createInferenceBackend(model);
    },
    dispose: () => model.dispose(),
  });
}

test('a generation counts once, however its tokens and its result are read', async () => {
  await using model = await loadModel(demoModelUrl, { context: 128, threads: 1 });
  const backend = createInferenceBackend(model);
  const stream = backend.generateStream('Once', { maxTokens: 3, temperature: 0 });
  const texts: string[] = [];
  for await (const { text } of stream) texts.push(text);
  const result = await stream.result();
  expect(await stream.result()).toEqual(result);
  expect(result.text).toBe(texts.join(''));
  expect(backend.metrics()).toMatchObject({ numGenerations: 1, numActive: 0, numFailed: 0, numGeneratedTokens: 3 });
});

test('a backend can be spread, and its functions be passed on alone', async () => {
  await using model = await loadModel(demoModelUrl, { context: 128, threads: 1 });
  const { generate, metrics } = { ...createInferenceBackend(model) };
  expect((await generate('Once upon', { maxTokens: 2 })).tokens).toHaveLength(2);
  expect(metrics().numGenerations).toBe(1);
});

test('unknown options are errors that name the nearest one', async () => {
  await using model = await loadModel(demoModelUrl, { context: 64, threads: 1 });
  const create = (options: object): unknown => createInferenceBackend(model, options);
  expect(() => create({ default: {} })).toThrow('did you mean "defaults"?');
  expect(() => create({ defaults: { temprature: 0 } })).toThrow('did you mean "defaults.temperature"?');
  const backend = createInferenceBackend(model);
  await expect(backend.generate('a', { maxToken: 1 } as object)).rejects.toThrow('did you mean "maxTokens"?');
  await expect(backend.logits('a', { signl: 1 } as object)).rejects.toThrow('did you mean "signal"?');
});
