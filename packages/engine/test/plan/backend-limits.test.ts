/** Plans keep to the limits of the backend. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend, type BackendLimits } from '@winnow/ops';
import { CapacityError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { loadEmbeddingModel, loadModel } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';

const path = archPath('llama', 'model.gguf') as string;
const options = { contextSize: 64 } as const;

function limited(limits: Partial<BackendLimits>): Backend {
  const backend = createReferenceBackend();
  const allocate = (): never => expect.unreachable('the plan is checked before memory is allocated');
  return { ...backend, limits: { ...backend.limits, ...limits }, allocate };
}

async function neededBytes(): Promise<number> {
  await using model = await loadModel(path, { ...options, backend: createReferenceBackend() });
  return model.plan.totalBytes;
}

test('a model that the backend cannot hold is refused before anything is allocated', async () => {
  const needed = await neededBytes();
  const error: unknown = await loadModel(path, { ...options, backend: limited({ maxTotalBytes: needed - 1 }) }).catch(
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(CapacityError);
  expect(error).toMatchObject({ resource: 'memory plan', needed, available: needed - 1 });
  const embedding = loadEmbeddingModel(path, { pooling: 'mean', backend: limited({ maxTotalBytes: 1000 }) });
  await expect(embedding).rejects.toThrow('memory plan');
});

test('a buffer that is larger than the backend has any is named', async () => {
  const loading = loadModel(path, { ...options, backend: limited({ maxBufferBytes: 1000 }) });
  await expect(loading).rejects.toThrow(/^buffer \S+: needed \d+ bytes, available 1000 bytes/v);
});

test('the limits of the WebAssembly backend are those of its memory', async () => {
  const maxMemoryBytes = 2 ** 21;
  await using backend = Object.assign(await createWasmBackend({ numThreads: 1, maxMemoryBytes }), {
    async [Symbol.asyncDispose](): Promise<void> {
      await backend.dispose();
    },
  });
  await expect(loadModel(path, { contextSize: 100_000, backend })).rejects.toMatchObject({
    resource: 'memory plan',
    available: maxMemoryBytes,
  });
});
