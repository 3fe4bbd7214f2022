/** Ops without a kernel run on the reference backend, and the model's metrics count them. */
import { createReferenceBackend, dispatchProgram, type Backend, type KernelBackend } from '@winnow/ops';
import { UnsupportedOpError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { loadModel } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';

const path = archPath('llama', 'model.gguf') as string;

/** The reference backend without a kernel for `rope`. */
function partialBackend(): Backend {
  const reference = createReferenceBackend();
  const backend: Backend = {
    ...reference,
    supports: (op, description) =>
      op === 'rope' ? { supported: false, reason: 'left out' } : reference.supports(op, description),
    prepare: (program, options) => dispatchProgram(kernels, program, options),
  };
  const kernels: KernelBackend = { ...backend, now: () => 0, prepareKernels: reference.prepare };
  return backend;
}

test('fallbacks are counted, give the same tokens, and can be rejected', async () => {
  const generation = { maxTokens: 8, temperature: 0, ignoreEos: true };
  const prompt = [1, 2, 3, 4, 5];
  await using whole = await loadModel(path, { context: 64, backend: createReferenceBackend() });
  await using partial = await loadModel(path, { context: 64, backend: partialBackend() });
  const expected = (await whole.generate(prompt, generation).result()).tokens;
  expect((await partial.generate(prompt, generation).result()).tokens).toEqual(expected);
  expect(whole.metrics().numFallbackRecords).toBe(0);
  const numRecords = partial.fallbacks.reduce((sum, fallback) => sum + fallback.numRecords, 0);
  expect(numRecords).toBeGreaterThan(0);
  expect(partial.metrics().numFallbackRecords).toBe(numRecords);
  const refused = loadModel(path, { context: 64, backend: partialBackend(), onUnsupported: 'error' });
  await expect(refused).rejects.toThrow(UnsupportedOpError);
});
