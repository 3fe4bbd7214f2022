import { fileURLToPath } from 'node:url';
import { Document } from '@langchain/core/documents';
import { BaseDocumentCompressor } from '@langchain/core/retrievers/document_compressors';
import { loadReranker, type Reranker } from '@winnow/engine';
import { CapacityError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WinnowReranker } from '../src/index.js';

const texts = ['The storm broke over the old harbor.', 'Beat two eggs with the sugar.', 'boats'];
const documents = texts.map(
  (pageContent, index) => new Document({ pageContent, metadata: { index }, id: `d${index}` }),
);
const query = 'Where is the harbor?';

describe('WinnowReranker', () => {
  let model: Reranker;
  beforeAll(async () => {
    const golden = new URL('../../engine/test/fixtures/rerank/bert/model.gguf', import.meta.url);
    model = await loadReranker(fileURLToPath(golden), { context: 64, threads: 1 });
  });
  afterAll(() => model.dispose());

  test('returns the documents in the order of the engine, with scores', async () => {
    const compressor = new WinnowReranker({ model });
    expect(BaseDocumentCompressor.isBaseDocumentCompressor(compressor)).toBe(true);
    const expected = await model.rerank(query, texts);
    const ranked = await compressor.compressDocuments(documents, query);
    expect(ranked).toEqual(
      expected.map(({ index, score }) => ({
        pageContent: texts[index],
        metadata: { index, relevanceScore: score },
        id: `d${index}`,
      })),
    );
    // the given documents stay as they are
    expect(documents[0]?.metadata).toEqual({ index: 0 });
    expect(await compressor.compressDocuments([], query)).toEqual([]);
  });

  test('passes its fields to the engine', async () => {
    const [best] = await model.rerank(query, texts, { normalize: false });
    const few = await new WinnowReranker({ model, topN: 1, normalize: false }).compressDocuments(documents, query);
    expect(few.map(({ metadata }) => metadata['relevanceScore'])).toEqual([best?.score]);
    const long = [new Document({ pageContent: 'boats '.repeat(100) })];
    const refusing = new WinnowReranker({ model }).compressDocuments(long, query);
    await expect(refusing).rejects.toSatisfy(CapacityError.isInstance);
    const cutting = new WinnowReranker({ model, overflow: 'truncate' });
    expect(await cutting.compressDocuments(long, query)).toHaveLength(1);
    expect(() => new WinnowReranker({ model, topK: 1 } as never)).toThrow('did you mean "topN"?');
  });
});
