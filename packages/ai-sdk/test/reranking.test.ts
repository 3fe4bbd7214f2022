/** Reranking through the real `ai` package, on a tiny cross-encoder with random weights. */
import { fileURLToPath } from 'node:url';
import { loadReranker, type Reranker } from '@winnow/engine';
import { createProviderRegistry, rerank } from 'ai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createWinnow, rerankingModel } from '../src/index.js';

const query = 'Where is the harbor?';
const documents = ['The storm broke over the old harbor.', 'Beat two eggs with the sugar.', 'boats'];

let model: Reranker;
beforeAll(async () => {
  const golden = new URL('../../engine/test/fixtures/rerank/bert/model.gguf', import.meta.url);
  model = await loadReranker(fileURLToPath(golden), { context: 96, threads: 1 });
});
afterAll(() => model.dispose());

test('rerank gives the order and the scores of the engine', async () => {
  const expected = await model.rerank(query, documents);
  const { ranking, rerankedDocuments } = await rerank({ model: rerankingModel(model), query, documents });
  expect(ranking.map(({ originalIndex, score }) => [originalIndex, score])).toEqual(
    expected.map(({ index, score }) => [index, score]),
  );
  expect(rerankedDocuments).toEqual(expected.map(({ index }) => documents[index]));
  const best = await rerank({ model: rerankingModel(model), query, documents, topN: 1 });
  expect(best.rerankedDocuments).toEqual([documents[expected[0]?.index as number]]);
});

test('settings, and options of one call', async () => {
  const [best] = await model.rerank(query, documents, { normalize: false });
  const settings = rerankingModel(model, { normalize: false, modelId: 'cross' });
  const { ranking, response } = await rerank({ model: settings, query, documents });
  expect(ranking[0]?.score).toBe(best?.score);
  expect(response.modelId).toBe('cross');
  const long = ['boats '.repeat(200)];
  const call = (options: object) =>
    rerank({
      model: rerankingModel(model),
      query,
      documents: long,
      maxRetries: 0,
      providerOptions: { winnow: options as never },
    });
  await expect(call({})).rejects.toThrow('documents[0]: needed');
  expect((await call({ overflow: 'truncate' })).ranking).toHaveLength(1);
  await expect(call({ overflov: 'truncate' })).rejects.toThrow('did you mean "overflow"?');
  expect(() => rerankingModel(model, { topN: 1 } as object)).toThrow('unknown option "topN"');
});

test('objects are ranked as JSON, with a warning', async () => {
  const values = documents.map((text) => ({ text }));
  const expected = await model.rerank(
    query,
    values.map((value) => JSON.stringify(value)),
  );
  const { ranking, warnings } = await rerankingModel(model).doRerank({ query, documents: { type: 'object', values } });
  expect(ranking).toEqual(expected.map(({ index, score }) => ({ index, relevanceScore: score })));
  expect(warnings).toEqual([
    { type: 'compatibility', feature: 'object documents', details: 'They are ranked as JSON.' },
  ]);
});

test('an abort rejects rerank', async () => {
  const abortSignal = AbortSignal.abort(new Error('enough'));
  const aborted = rerank({ model: rerankingModel(model), query, documents, abortSignal, maxRetries: 0 });
  await expect(aborted).rejects.toThrow('enough');
});

test('rerankers by name, also in a registry', async () => {
  const winnow = createWinnow({ rerankingModels: { cross: model } });
  const registry = createProviderRegistry({ winnow });
  const [direct, registered] = await Promise.all(
    [winnow.rerankingModel('cross'), registry.rerankingModel('winnow:cross')].map((named) =>
      rerank({ model: named, query, documents }),
    ),
  );
  expect(registered?.ranking).toEqual(direct?.ranking);
  expect(() => winnow.rerankingModel('other')).toThrow('other');
});
