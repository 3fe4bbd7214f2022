import { loadEmbeddingModel } from '@winnow/engine';
import { createReferenceBackend } from '@winnow/ops';
import { calibrate } from '@winnow/sparse-inference';
import { ArgumentError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { defaultText } from '../text/default-text.js';
import { evaluateSparseEmbeddings } from './evaluate-sparse-embeddings.js';

test('an encoder with two-matrix FFNs: predictors, vectors compared with dense, sentence pairs', async () => {
  const location = new URL('../../../engine/test/fixtures/arch/bert-mean/model.gguf', import.meta.url);
  const shared = { threads: 1 };
  await using dense = await loadEmbeddingModel(location, { ...shared, trace: { feedForward: true } });
  const backend = createReferenceBackend();
  const words = defaultText(1024, (text) => dense.encodeText(text).length).split(/\s+/);
  const texts = Array.from({ length: 24 }, (_, i) => words.slice(i * 6, i * 6 + 6).join(' '));
  const samples = texts.map((text) => dense.encodeText(text));
  const access = dense.feedForward as NonNullable<typeof dense.feedForward>;
  const pairs = [0, 1, 2, 3].map((i) => ({ first: texts[i] as string, second: texts[i + 1] as string, score: i }));
  const options = { backend, samples, rank: 64, epochs: 0 };
  const results = [];
  for (const target of [{ targetRecall: 1 }, { targetSparsity: 0.9 }]) {
    const sidecar = await calibrate(access, { ...options, ...target });
    await using sparse = await loadEmbeddingModel(location, { ...shared, sparsity: { calibration: sidecar } });
    results.push(await evaluateSparseEmbeddings({ dense, sparse, sidecar, backend, texts: texts.slice(0, 5), pairs }));
    await expect(evaluateSparseEmbeddings({ dense: sparse, sparse: dense, sidecar, backend, texts })).rejects.toThrow(
      ArgumentError,
    );
    await expect(evaluateSparseEmbeddings({ dense, sparse, sidecar, backend, texts: [] })).rejects.toThrow(/texts/);
  }
  const [all, few] = results as [(typeof results)[0], (typeof results)[0]];
  expect(all.numTexts).toBe(5);
  expect(all.layers).toHaveLength(2);
  expect(all.cosine.least).toBeGreaterThan(0.99);
  expect(few.cosine.mean).toBeLessThan(all.cosine.mean);
  expect(few.cosine.least).toBeLessThanOrEqual(few.cosine.mean);
  expect(few.computedRatio).toBeLessThan(all.computedRatio);
  expect(few.computedRatio).toBeGreaterThan(0.1); // a text needs more neurons than a token
  expect(few.sts?.dense).toEqual(all.sts?.dense);
  expect(few.sts?.sparse.numPairs).toBe(4);
});
