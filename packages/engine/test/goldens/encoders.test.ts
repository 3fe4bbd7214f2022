/** Tiny encoders with random weights against vectors of an independent float64 pass and token ids of llama.cpp. */
import { fileURLToPath } from 'node:url';
import type { Pooling } from '@winnow/models';
import { type Backend } from '@winnow/ops';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadEmbeddingModel, type EmbeddingModel } from '../../src/index.js';
import { useBackends } from '../support/backends.js';
import { archPath, decodeFloats, encoderNames, maxDifference, readJson } from '../support/golden-files.js';

interface Golden {
  readonly embeddings: readonly { readonly text: string; readonly tokens: readonly number[] }[];
}

/** The limit that the goldens' documentation derives for an f32 engine. */
const limit = 5e-4;

/** The poolings that folders without modules do not declare. */
const poolings: Readonly<Record<string, Pooling>> = { 'bert-cls': 'cls', 'xlm-roberta': 'cls', gte: 'cls' };

const backends = useBackends();

function worstOf(actual: readonly Float32Array[], expected: readonly Float32Array[]): number {
  expect(actual.length).toBe(expected.length);
  return Math.max(...actual.map((vector, index) => maxDifference(vector, expected[index] as Float32Array)));
}

for (const name of Object.values(encoderNames).flat()) {
  for (const file of ['model.gguf', 'hf']) {
    const path = archPath(name, file);
    const [golden, exact] = ['golden.json', 'exact.json'].map((part) => archPath(name, part));
    const isMissing = path === undefined || golden === undefined || exact === undefined;
    if (isMissing && golden !== undefined) continue; // not every golden has both formats
    describe.skipIf(isMissing)(`${name}/${file}${isMissing ? ' (needs ../shared/data/goldens)' : ''}`, () => {
      const texts = isMissing ? [] : readJson<Golden>(golden).embeddings;
      const vectors = isMissing ? [] : readJson<{ embeddings: string[] }>(exact).embeddings.map(decodeFloats);
      const ids = texts.map(({ tokens }) => tokens);

      // weights are the same in both files: the slow reference reads them from one
      const isSecond = file === 'hf' && archPath(name, 'model.gguf') !== undefined;
      const onReference = testCoverage === 'full' || !isSecond;
      describe.each(['WebAssembly', ...(onReference ? ['reference'] : [])])('%s backend', (backendName) => {
        let model: EmbeddingModel;
        beforeAll(async () => {
          const pooling = file === 'hf' ? { pooling: poolings[name] ?? 'mean' } : {};
          const backend = backends[backendName] as Backend;
          model = await loadEmbeddingModel(path as string, { backend, onUnsupported: 'error', ...pooling });
        });
        afterAll(() => model.dispose());

        test('all texts in one step', async () => {
          expect(worstOf(await model.embed(ids, { normalize: false }), vectors)).toBeLessThan(limit);
        });

        test('text by text, and in steps of two texts', async () => {
          for (const [index, tokens] of ids.entries()) {
            const single = await model.embed([tokens], { normalize: false });
            expect(worstOf(single, vectors.slice(index, index + 1))).toBeLessThan(limit);
          }
          const backend = backends[backendName] as Backend;
          const pooling = { pooling: model.pooling };
          await using small = await loadEmbeddingModel(path as string, { backend, maxTexts: 2, ...pooling });
          expect(worstOf(await small.embed(ids, { normalize: false }), vectors)).toBeLessThan(limit);
        });

        test('normalized: the cosine with the golden vector is 1', async () => {
          const actual = await model.embed(ids);
          for (const [index, vector] of actual.entries()) {
            const expected = vectors[index] as Float32Array;
            const norm = Math.hypot(...expected);
            const cosine = vector.reduce((sum, value, i) => sum + (value * (expected[i] as number)) / norm, 0);
            expect(Math.hypot(...vector)).toBeCloseTo(1, 6);
            // two vectors at distance d and angle a: cos a >= 1 - (d / norm)^2 / 2
            expect(1 - cosine).toBeLessThan(((limit * Math.sqrt(vector.length)) / norm) ** 2 / 2 + 1e-6);
          }
        });

        if (file === 'model.gguf') {
          test('texts become the tokens of llama.cpp', () => {
            for (const { text, tokens } of texts) expect([...model.encodeText(text)]).toEqual(tokens);
          });
        }
      });
    });
  }
}

test('a decoder, pooled by its last token as Qwen3-Embedding and E5-Mistral are', async () => {
  const path = fileURLToPath(new URL('../fixtures/rerank/qwen3/', import.meta.url));
  const { embeddings, exact } = readJson<Golden & { readonly exact: string[] }>(`${path}embeddings.json`);
  const backend = backends['WebAssembly'] as Backend;
  await using model = await loadEmbeddingModel(`${path}hf`, { backend, pooling: 'last' });
  const ids = embeddings.map(({ tokens }) => tokens);
  expect(worstOf(await model.embed(ids, { normalize: false }), exact.map(decodeFloats))).toBeLessThan(limit);
});
