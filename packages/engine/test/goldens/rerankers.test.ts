/** Tiny rerankers with random weights against the logits and token ids of transformers, in float64. */
import { fileURLToPath } from 'node:url';
import { type Backend } from '@winnow/ops';
import { testCoverage } from '@winnow/test-utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadReranker, type Reranker } from '../../src/index.js';
import { useBackends } from '../support/backends.js';
import { decodeFloats, readJson, rerankerNames } from '../support/golden-files.js';

interface Golden {
  readonly query: string;
  readonly pairs: readonly { readonly document: string; readonly tokens: readonly number[] }[];
  /** Of relevance, or of yes minus that of no. */
  readonly logits: string;
}

/** The limit that the goldens' documentation derives for an f32 engine. */
const limit = 5e-4;

const pathOf = (name: string, file: string): string =>
  fileURLToPath(new URL(`../fixtures/rerank/${name}/${file}`, import.meta.url));

const backends = useBackends();

/** Weights are the same in both files: the slow reference reads them from one. */
const backendsOf = (file: string): readonly string[] =>
  file === 'model.gguf' || testCoverage === 'full' ? ['WebAssembly', 'reference'] : ['WebAssembly'];

const cases = Object.values(rerankerNames)
  .flat()
  .flatMap((name) =>
    ['model.gguf', 'hf'].flatMap((file) => backendsOf(file).map((backend) => ({ name, file, backend }))),
  );

describe.each(cases)('$name/$file, $backend backend', ({ name, file, backend }) => {
  const { query, pairs, logits } = readJson<Golden>(pathOf(name, 'golden.json'));
  const documents = pairs.map(({ document }) => document);
  const expected = [...decodeFloats(logits)];
  let model: Reranker;
  beforeAll(async () => {
    model = await loadReranker(pathOf(name, file), { backend: backends[backend] as Backend, onUnsupported: 'error' });
  });
  afterAll(() => model.dispose());

  test('logits, in the order of relevance', async () => {
    const ranked = await model.rerank(query, documents, { normalize: false });
    expect(ranked.map(({ index }) => index)).toEqual(
      expected.map((_, index) => index).toSorted((a, b) => (expected[b] as number) - (expected[a] as number)),
    );
    for (const { index, score, numTokens } of ranked) {
      expect(Math.abs(score - (expected[index] as number))).toBeLessThan(limit);
      expect(numTokens).toBe(pairs[index]?.tokens.length);
    }
  });

  test('one document at a time, and in steps of two', async () => {
    for (const [index, document] of documents.entries()) {
      const [alone] = await model.rerank(query, [document], { normalize: false });
      expect(Math.abs((alone?.score as number) - (expected[index] as number))).toBeLessThan(limit);
    }
    await using small = await loadReranker(pathOf(name, file), { backend: backends[backend] as Backend, maxTexts: 2 });
    for (const { index, score } of await small.rerank(query, documents)) {
      // the slope of the logistic function is at most 1/4
      expect(Math.abs(score - 1 / (1 + Math.exp(-(expected[index] as number))))).toBeLessThan(limit / 4);
    }
  });
});
