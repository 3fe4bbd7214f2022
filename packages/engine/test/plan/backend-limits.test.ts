/** Memory plans respect the limits of the backend. */
import { totalmem } from 'node:os';
import { createWasmBackend } from '@winnow/backend-wasm';
import { createReferenceBackend, type Backend, type BackendLimits } from '@winnow/ops';
import { CapacityError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { inspectModel, loadEmbeddingModel, loadModel, type FeedForwardAccess } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';
import { makeSidecar } from '../support/sidecars.js';

const path = archPath('llama', 'model.gguf') as string;
const options = { context: 64 } as const;

function limited(limits: Partial<BackendLimits>): Backend {
  const backend = createReferenceBackend();
  const allocate = (): never => expect.unreachable('the plan is checked before memory is allocated');
  return { ...backend, limits: { ...backend.limits, ...limits }, allocate };
}

async function neededBytes(): Promise<number> {
  await using model = await loadModel(path, { ...options, backend: createReferenceBackend() });
  return model.plan.totalBytes;
}

test('a model that the backend cannot hold is rejected before anything is allocated', async () => {
  const needed = await neededBytes();
  const error: unknown = await loadModel(path, { ...options, backend: limited({ maxTotalBytes: needed - 1 }) }).catch(
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(CapacityError);
  expect(error).toMatchObject({ resource: 'memory plan', needed, available: needed - 1 });
  const embedding = loadEmbeddingModel(path, { pooling: 'mean', backend: limited({ maxTotalBytes: 1000 }) });
  await expect(embedding).rejects.toThrow('memory plan');
});

test('the error names a buffer that exceeds the limit of the backend', async () => {
  const loading = loadModel(path, { ...options, backend: limited({ maxBufferBytes: 1000 }) });
  await expect(loading).rejects.toThrow(/^buffer \S+: needed \d+ bytes, available 1000 bytes/v);
});

test.each([
  ['context', 1e9, {}],
  ['context with keys and values in 4 bits', 1e9, { kvCache: { dtype: 'q4_0' } }],
  ['context of sparse attention', 1e9, { attention: 'streaming:window=64,sinks=4' }],
  ['capacity', 64, { kvCache: { capacity: 1e9 } }],
  ['number of sessions', 64, { maxSessions: 1e9 }],
] as const)(
  'a huge %s exceeds the memory of the host before anything is allocated, also without a limit of the backend',
  async (_name, context, given) => {
    const error: unknown = await loadModel(path, { context, ...given, backend: limited({}) }).catch(
      (reason: unknown) => reason,
    );
    expect(error).toMatchObject({ resource: 'memory plan', unit: 'bytes', available: totalmem() });
    expect((error as CapacityError).needed).toBeGreaterThan(1e10);
    expect((error as CapacityError).message).toMatch(/weights \d+, kv \d+ for \d+ tokens, activations \d+/);
    const embedding = loadEmbeddingModel(path, { pooling: 'mean', context: 1e9, backend: limited({}) });
    await expect(embedding).rejects.toMatchObject({ resource: 'memory plan', available: totalmem() });
  },
);

test.each(['context', 'maxSessions', 'batchSize'])('%s beyond 32 bits is rejected by its name', async (name) => {
  const loading = loadModel(path, { context: 64, [name]: 2 ** 53 - 1, backend: limited({}) });
  await expect(loading).rejects.toThrow(`${name}: expected an integer from 1 to 2147483647, got 9007199254740991`);
});

test('the limits of the WebAssembly backend are those of its memory', async () => {
  const maxMemoryBytes = 2 ** 21;
  await using backend = Object.assign(await createWasmBackend({ numThreads: 1, maxMemoryBytes }), {
    async [Symbol.asyncDispose](): Promise<void> {
      await backend.dispose();
    },
  });
  await expect(loadModel(path, { context: 100_000, backend })).rejects.toMatchObject({
    resource: 'memory plan',
    available: maxMemoryBytes,
  });
});

test('blocks that violate the copy alignment are copied through the host', async () => {
  const tokensOf = async (copyAlignment: number): Promise<readonly (readonly number[])[]> => {
    const inner = createReferenceBackend();
    const backend: Backend = {
      ...inner,
      limits: { ...inner.limits, copyAlignment },
      async copy(...call) {
        expect(call[4] % copyAlignment).toBe(0);
        await inner.copy(...call);
      },
    };
    await using model = await loadModel(path, { ...options, backend });
    const session = model.createSession();
    const prompt = [3, 4, 5, 6, 7];
    await session.generate(prompt, { temperature: 0, maxTokens: 2 }).result();
    const sessions = [session, session.fork()];
    const generate = async (one: typeof session, last: number): Promise<readonly number[]> =>
      (await one.generate([...prompt, last], { temperature: 0, maxTokens: 4 }).result()).tokens;
    const results = await Promise.all(sessions.map((one, index) => generate(one, 8 + index)));
    expect(model.metrics().cache.numCopiedBlocks).toBeGreaterThan(0);
    return results;
  };
  expect(await tokensOf(2 ** 20)).toEqual(await tokensOf(1));
});

test('inspectModel takes the break-even ratios of the backend that would run the model', async () => {
  let numAsked = 0;
  const backend = createReferenceBackend();
  const createBackend = async (): Promise<Backend> => ({
    ...backend,
    breakEvenRatio: (...call) => {
      numAsked++;
      return backend.breakEvenRatio(...call);
    },
  });
  await using traced = await loadModel(path, { ...options, backend, trace: { feedForward: true } });
  const design = { kind: 'low-rank', threshold: 0.2 } as const;
  const sparse = await makeSidecar(traced.feedForward as FeedForwardAccess, design);
  await inspectModel(path, { ...options, createBackend, sparsity: { calibration: sparse } });
  expect(numAsked).toBeGreaterThan(0);
});
