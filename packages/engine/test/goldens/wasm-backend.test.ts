/** The goldens of tiny models and the demo model on the WebAssembly backend. */
import { fileURLToPath } from 'node:url';
import { createWasmBackend, type CreateWasmBackendOptions, type WasmBackend } from '@winnow/backend-wasm';
import { demoModelUrl } from '@winnow/demo-model';
import { sampled, testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel, type Model } from '../../src/index.js';
import { archPath, decodeFloats, maxDifference, readJson } from '../support/golden-files.js';

interface Golden {
  readonly prompts: readonly {
    readonly tokens: readonly number[];
    readonly positions: readonly number[];
    readonly greedy: readonly number[];
  }[];
}
interface Exact {
  readonly logprobs: readonly (readonly string[])[];
}
interface DemoGolden {
  readonly prompts: readonly {
    readonly ids: readonly number[];
    readonly greedy: readonly number[];
    readonly greedy_text: string;
  }[];
}

const architectures = ['llama', 'llama-linear', 'llama-yarn', 'llama3-ropefreqs', 'mistral'];
/** The limit that the goldens' documentation derives for an f32 engine. */
const limit = 5e-4;
const maxMemoryBytes = 2 ** 28;
/** The whole golden, or enough tokens to cross a block boundary of the cache after some prompt. */
const numGreedy = testCoverage === 'full' ? 64 : 24;

const variants: Readonly<Record<string, CreateWasmBackendOptions>> = {
  'relaxed SIMD, 2 threads': { relaxedSimd: true, numThreads: 2, minSharedWork: 0 },
  'SIMD, 1 thread': { relaxedSimd: false, numThreads: 1 },
  'SIMD, without shared memory': { relaxedSimd: false, sharedMemory: false },
};

for (const [index, [variant, backendOptions]] of Object.entries(variants).entries()) {
  // programs do not depend on the variant: `npm test` runs the first one on all architectures
  const ofVariant = index === 0 ? architectures : sampled(architectures, 3, index);
  describe(variant, () => {
    let backend: WasmBackend;
    beforeAll(async () => {
      backend = await createWasmBackend({ maxMemoryBytes, ...backendOptions });
    });
    afterAll(() => backend.dispose());

    const isThere = (name: string): boolean => archPath(name, 'model.gguf') !== undefined;
    for (const name of ofVariant.filter((each) => !isThere(each))) {
      test.skip(`${name}: needs ../shared/data/goldens`, () => {});
    }
    test.each(ofVariant.filter(isThere))(`%s: log-probabilities within ${limit} and greedy ids`, async (name) => {
      const golden = readJson<Golden>(archPath(name, 'golden.json') as string);
      const exact = readJson<Exact>(archPath(name, 'exact.json') as string);
      const model = await loadModel(archPath(name, 'model.gguf') as string, { context: 256, backend });
      expect(model.fallbacks).toEqual([]);
      for (const batchSize of sampled([1, 7, 64], 3, 1)) {
        for (const [index, { tokens, positions }] of golden.prompts.entries()) {
          const actual = await model.logprobs(tokens, { positions, batchSize });
          for (const [at, logprobs] of actual.entries()) {
            const expected = decodeFloats(exact.logprobs[index]?.[at] as string);
            expect(maxDifference(logprobs, expected)).toBeLessThan(limit);
          }
        }
      }
      for (const { tokens, greedy } of golden.prompts) {
        const options = { temperature: 0, maxTokens: greedy.length, ignoreEos: true };
        const { tokens: actual } = await model.generate(tokens, options).result();
        expect(actual).toEqual(greedy);
      }
      await model.dispose();
    });

    test(`demo model: greedy continuations of ${numGreedy} tokens`, async () => {
      const path = fileURLToPath(new URL('../../../demo-model/src/__fixtures__/goldens.json', import.meta.url));
      const { prompts } = readJson<DemoGolden>(path);
      const model: Model = await loadModel(demoModelUrl, { backend });
      // the first variant runs the prompt of 1,674 tokens, too
      const chosen = testCoverage === 'full' || index === 0 ? prompts : prompts.filter(({ ids }) => ids.length < 100);
      for (const { ids, greedy, greedy_text: text } of chosen) {
        const result = await model.generate(ids, { temperature: 0, maxTokens: numGreedy, ignoreEos: true }).result();
        expect(result.tokens).toEqual(greedy.slice(0, numGreedy));
        if (numGreedy === greedy.length) expect(model.tokenizer.decode(result.tokens)).toBe(text);
      }
      await model.dispose();
    });
  });
}
