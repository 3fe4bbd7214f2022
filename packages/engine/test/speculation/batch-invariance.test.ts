/** The bits of a token's logits do not depend on how many tokens share its step, up to 16. */
import { createWasmBackend } from '@winnow/backend-wasm';
import { createRng } from '@winnow/tensor';
import { sampled } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { loadModel, type LoadOptions } from '../../src/index.js';
import { archPath, goldenNames } from '../support/golden-files.js';
import { inMemory } from '../support/in-memory.js';
import { hasNative } from '../support/native.js';

const rng = createRng(5);
const longText = Array.from({ length: 660 }, () => rng.nextInt(200));
const text = longText.slice(0, 48);

/** Expects the log-probabilities of the last tokens, bit for bit, whatever the number of tokens per step. */
async function expectInvariant(
  path: string,
  options: LoadOptions,
  sizes: readonly number[],
  tokens = text,
): Promise<void> {
  const model = await loadModel(inMemory(path), { context: tokens.length, speculative: 'auto', ...options });
  const positions = [...tokens.keys()].slice(-160);
  try {
    const plain = await model.logprobs(tokens, { positions, batchSize: 1 });
    for (const size of sizes) {
      const rows = await model.logprobs(tokens, { positions, batchSize: size });
      const differing = positions.filter((_, row) =>
        rows[row]!.some((value, id) => !Object.is(value, plain[row]![id])),
      );
      expect(differing, `steps of ${size}`).toEqual([]);
    }
  } finally {
    await model.dispose();
  }
}

const wasm =
  (numThreads: number, native = false) =>
  () => {
    // one thread is the calling one: starting a worker takes longer than a small model
    const threads = numThreads === 1 ? { maxCallerMs: 1e4 } : { minSharedWork: 0 };
    return createWasmBackend({ numThreads, native, ...threads, maxMemoryBytes: 2 ** 27 });
  };
/** Native kernels where the addon has been built. */
const backends = (await hasNative()) ? [false, true] : [false];

describe.each(backends)('all architectures, native: %s', (native) => {
  const names = Object.values(goldenNames).flat();
  test.each(sampled(names, native ? 8 : 4).filter((name) => archPath(name, 'model.gguf') !== undefined))('%s', (name) =>
    expectInvariant(archPath(name, 'model.gguf') as string, { createBackend: wasm(1, native) }, [3, 16]),
  );
});

describe.each(backends)('policies, weights, caches, threads, native: %s', (native) => {
  const llama = archPath('llama', 'model.gguf') as string;
  const cases: Readonly<Record<string, LoadOptions>> = {
    'two threads': { createBackend: wasm(2, native) },
    'four threads, q4_0': { createBackend: wasm(4, native), quantize: 'q4_0' },
    'q8_0 cache': { createBackend: wasm(2, native), kvCache: { dtype: 'q8_0' } },
    'f16 weights': { createBackend: wasm(1, native), quantize: 'f16' },
    'f16 cache': { createBackend: wasm(1, native), kvCache: { dtype: 'f16' } },
    q4_K: { createBackend: wasm(1, native), quantize: 'q4_K' },
    'exact activations': { createBackend: wasm(1, native), quantize: 'q8_0', activations: 'f32' },
    streaming: { createBackend: wasm(2, native), attention: 'streaming:window=16,sinks=4' },
  };
  // `npm test` runs every other one on each side
  test.each(sampled(Object.keys(cases), 2, native ? 0 : 1))('%s', (name) =>
    expectInvariant(llama, cases[name] as LoadOptions, native ? [4, 16] : [2, 7, 16]),
  );

  // from 512 tokens on threads share contexts; the lengths of splits change at 512 and 640
  test.each(sampled([1, 2], 2, native ? 1 : 0))('contexts that are split, %d threads', (numThreads) =>
    expectInvariant(llama, { createBackend: wasm(numThreads, native) }, [7], longText),
  );
});
