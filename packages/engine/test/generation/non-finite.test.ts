/** A result that is not finite is an error that names the tensor it comes from. */
import { createReferenceBackend } from '@winnow/ops';
import { NonFiniteError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { loadEmbeddingModel, loadModel, type LoadOptions } from '../../src/index.js';
import { tinyLlama } from '../support/tiny-llama.js';

const broken = 'model.layers.1.mlp.down_proj.weight';
const prompt = [1, 2, 3, 4, 5];

/** One value of a weight is replaced. */
const planted = (value: number, tensor = broken): ReturnType<typeof tinyLlama> =>
  tinyLlama({}, (name, values) => {
    if (name === tensor) values[values.length - 3] = value;
  });

/** Keys of layer 1 exceed the range of f32, although every weight is finite. */
const overflowing = (): ReturnType<typeof tinyLlama> =>
  tinyLlama({}, (name, values) => {
    if (name === 'model.layers.1.input_layernorm.weight') values.fill(3e38);
  });

async function failureOf(run: Promise<unknown>): Promise<NonFiniteError> {
  const error: unknown = await run.catch((caught: unknown) => caught);
  if (!NonFiniteError.isInstance(error)) throw error;
  return error;
}

const hosts: Readonly<Record<string, () => LoadOptions>> = {
  'the own backend, whose file stays open': () => ({}),
  'a backend of the caller, with the file closed': () => ({ backend: createReferenceBackend() }),
};

describe.each(Object.keys(hosts))('on %s', (host) => {
  const options = (): LoadOptions => ({ context: 64, ...hosts[host]!() });

  test.each([NaN, Infinity])('a weight of %d ends generations and log-probabilities', async (value) => {
    await using model = await loadModel(await planted(value), options());
    const generated = await failureOf(model.generate(prompt, { maxTokens: 2 }).result());
    expect(generated.message).toBe(
      `logits: expected finite values, got NaN; the first tensor with such a value is ${broken} (${value})`,
    );
    const logprobs = await failureOf(model.logprobs(prompt));
    expect([logprobs.result, logprobs.tensor]).toEqual(['log-probabilities', `${broken} (${value})`]);
    expect(model.metrics()).toMatchObject({ numSessions: 0, cache: { numUsedBlocks: 0 } });
  });

  test('a weight of NaN ends embeddings', async () => {
    await using model = await loadEmbeddingModel(await planted(NaN), { pooling: 'mean', ...hosts[host]!() });
    const error = await failureOf(model.embed([prompt]));
    expect([error.result, error.tensor]).toEqual(['embeddings', `${broken} (NaN)`]);
  });

  test('activations beyond the range: the first keys or values of the cache', async () => {
    await using model = await loadModel(await overflowing(), options());
    const { tensor, message } = await failureOf(model.generate(prompt, { maxTokens: 2 }).result());
    expect(tensor).toMatch(/^kv\.1\.keys of the KV cache \(NaN\)$/);
    expect(message).toMatch(/; all weights are finite, so an activation exceeds the range of its dtype$/);
  });
});

test('the first of several tensors', async () => {
  const folder = await tinyLlama({}, (name, values) => {
    if (name.endsWith('up_proj.weight')) values[0] = NaN;
  });
  await using model = await loadModel(folder, { context: 64 });
  const { tensor } = await failureOf(model.generate(prompt, { maxTokens: 2 }).result());
  expect(tensor).toBe('model.layers.0.mlp.up_proj.weight (NaN)');
});

test('other sessions go on', async () => {
  const folder = await tinyLlama({}, (name, values) => {
    if (name === 'model.embed_tokens.weight') values[7 * 32] = NaN; // token 7
  });
  await using model = await loadModel(folder, { context: 64, maxSessions: 2 });
  const options = { temperature: 0, maxTokens: 3, ignoreEos: true } as const;
  const [failed, well] = await Promise.allSettled([
    model.generate([1, 7, 2], options).result(),
    model.generate([1, 6, 2], options).result(),
  ]);
  expect(failed).toMatchObject({ status: 'rejected', reason: { tensor: 'model.embed_tokens.weight (NaN)' } });
  expect(well).toMatchObject({ status: 'fulfilled' });
});

test('quantized weights cannot be read again when the file is closed, and the error says so', async () => {
  const options: LoadOptions = { context: 64, quantize: 'q8_0', backend: createReferenceBackend() };
  await using model = await loadModel(await overflowing(), options);
  const { message } = await failureOf(model.generate(prompt, { maxTokens: 2 }).result());
  expect(message).toMatch(
    /first tensor with such a value is kv\.1\.keys .*; \d+ quantized weights could not be read again: the file is closed$/,
  );
});
