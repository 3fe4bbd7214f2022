import { Document } from '@langchain/core/documents';
import { FakeVectorStore } from '@langchain/core/utils/testing';
import { demoModelUrl } from '@winnow/demo-model';
import { loadEmbeddingModel, type EmbeddingModel } from '@winnow/engine';
import { CapacityError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WinnowEmbeddings } from '../src/index.js';

const texts = ['The storm broke over the old harbour.', 'Beat two eggs with the sugar.', 'She moved to the city.'];

describe('WinnowEmbeddings', () => {
  let model: EmbeddingModel;
  beforeAll(async () => {
    model = await loadEmbeddingModel(demoModelUrl, { pooling: 'mean', context: 64, threads: 1 });
  });
  afterAll(() => model.dispose());

  test('vectors equal those of the engine, as plain arrays', async () => {
    const embeddings = new WinnowEmbeddings({ model });
    const expected = (await model.embed(texts)).map((vector) => Array.from(vector));
    expect(await embeddings.embedDocuments(texts)).toEqual(expected);
    expect(await embeddings.embedQuery(texts[1] as string)).toEqual(expected[1]);
    expect(await embeddings.embedDocuments([])).toEqual([]);
    expect(await Promise.all(texts.map((text) => embeddings.embedQuery(text)))).toEqual(expected);
  });

  test('passes options to the engine', async () => {
    const plain = new WinnowEmbeddings({ model, normalize: false, documentPrompt: 'text: ', queryPrompt: '' });
    const [expected] = await model.embed(['text: a'], { normalize: false });
    expect(await plain.embedDocuments(['a'])).toEqual([Array.from(expected as Float32Array)]);
    const long = 'word '.repeat(100);
    await expect(plain.embedQuery(long)).rejects.toSatisfy(CapacityError.isInstance);
    expect(await new WinnowEmbeddings({ model, overflow: 'chunk-average' }).embedQuery(long)).toHaveLength(
      model.dimensions,
    );
  });

  test('uses the prompts of the model by name', async () => {
    const asked: unknown[] = [];
    const embed: EmbeddingModel['embed'] = async (inputs, options) => {
      asked.push(options);
      return inputs.map(() => new Float32Array(2));
    };
    const embeddings = new WinnowEmbeddings({ model: { ...model, prompts: { query: 'q: ', document: 'd: ' }, embed } });
    await embeddings.embedQuery('a');
    await embeddings.embedDocuments(['a']);
    expect(asked).toEqual([{ promptName: 'query' }, { promptName: 'document' }]);
  });

  test('works with a vector store of LangChain', async () => {
    const store = new FakeVectorStore(new WinnowEmbeddings({ model }));
    await store.addDocuments(texts.map((pageContent) => new Document({ pageContent })));
    for (const text of texts) {
      const [[document, score]] = (await store.similaritySearchWithScore(text, 1)) as [[Document, number]];
      expect(document.pageContent).toBe(text);
      expect(score).toBeCloseTo(1, 4);
    }
    const found = await store.asRetriever(2).invoke('The storm broke over the harbour.');
    expect(found).toHaveLength(2);
  });
});
