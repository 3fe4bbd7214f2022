/** `/v1/rerank` on a tiny cross-encoder with random weights. */
import { fileURLToPath } from 'node:url';
import { demoModelUrl } from '@winnow/demo-model';
import {
  loadEmbeddingModel,
  loadReranker,
  type EmbeddingModel,
  type RankedDocument,
  type Reranker,
} from '@winnow/engine';
import type { Static } from 'typebox';
import { Value } from 'typebox/value';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ErrorBody } from '../src/schemas/common.js';
import { RerankResult } from '../src/schemas/rerank.js';
import { postJson, slotsOf, startServer, until, type DemoServer } from './demo-server.js';

const query = 'Where is the harbor?';
const documents = ['The harbor is by the sea.', 'Two eggs.', 'storm'];

let model: Reranker;
let embedder: EmbeddingModel;
let demo: DemoServer;
let expected: RankedDocument[];
beforeAll(async () => {
  const golden = new URL('../../../packages/engine/test/fixtures/rerank/bert/model.gguf', import.meta.url);
  model = await loadReranker(fileURLToPath(golden), { context: 64, threads: 1 });
  embedder = await loadEmbeddingModel(demoModelUrl, { pooling: 'mean', threads: 1 });
  demo = await startServer({
    rerankers: [{ id: 'cross', model }],
    embeddingModels: [{ id: 'vectors', model: embedder }],
    tokensPerMinute: 1e6,
  });
  expected = await model.rerank(query, documents);
});
afterAll(async () => {
  await demo.close();
  await model.dispose();
  await embedder.dispose();
});

const numTokens = (): number => expected.reduce((sum, each) => sum + each.numTokens, 0);

async function rerank(body: object, path = '/v1/rerank'): Promise<RerankResult> {
  const response = await postJson(`${demo.url}${path}`, { query, documents, ...body });
  expect(response.status).toBe(200);
  const result: unknown = await response.json();
  expect([...Value.Errors(RerankResult, result)]).toEqual([]);
  return result as RerankResult;
}

async function refused(body: object): Promise<{ status: number; code: string; param: string; message: string }> {
  const response = await postJson(`${demo.url}/v1/rerank`, { query, documents, ...body });
  const failure = (await response.json()) as Static<typeof ErrorBody>;
  expect([...Value.Errors(ErrorBody, failure)]).toEqual([]);
  return { status: response.status, ...failure.error } as never;
}

describe('results', () => {
  test.each([
    ['/v1/rerank', '1'],
    ['/v2/rerank', '2'],
    ['/rerank', '1'],
  ])('%s: index and relevance_score, the best first', async (path, version) => {
    expect(await rerank({}, path)).toEqual({
      id: expect.any(String) as string,
      object: 'list',
      model: 'cross',
      results: expected.map(({ index, score }) => ({ index, relevance_score: score })),
      usage: { prompt_tokens: numTokens(), total_tokens: numTokens() },
      meta: { api_version: { version } },
    });
  });

  test('top_n and return_documents; documents as objects; usage counts all of them', async () => {
    const [best] = expected as [RankedDocument];
    const result = await rerank({
      top_n: 1,
      return_documents: true,
      documents: documents.map((text) => ({ text })),
      model: 'cross',
    });
    const document = { text: documents[best.index] };
    expect(result.results).toEqual([{ index: best.index, relevance_score: best.score, document }]);
    expect(result.usage.total_tokens).toBe(numTokens());
  });

  test('truncate', async () => {
    const { results } = await rerank({ documents: ['boats '.repeat(80)], truncate: true });
    expect(results[0]?.dropped_tokens).toBeGreaterThan(0);
  });
});

describe('errors', () => {
  test('a document that is too long, and a query that leaves no room', async () => {
    const long = 'boats '.repeat(80);
    const common = { status: 400, code: 'context_length_exceeded' };
    expect(await refused({ documents: ['storm', long] })).toMatchObject({ ...common, param: 'documents[1]' });
    expect(await refused({ query: long, truncate: true })).toMatchObject({ ...common, param: 'query' });
  });

  test.each([
    [{ documents: [] }, 'documents'],
    [{ documents: [7] }, 'documents[0]'],
    [{ query: undefined }, 'query'],
    [{ top_n: 0 }, 'top_n'],
    [{ max_tokens_per_doc: 10 }, 'max_tokens_per_doc'],
    [{ instruction: 'Find recipes' }, 'instruction'],
  ])('%j', async (body, param) => {
    expect(await refused(body)).toMatchObject({ status: 400, param });
  });

  test('models of another kind', async () => {
    const message = "The model 'vectors' does not rank documents on this server";
    expect(await refused({ model: 'vectors' })).toMatchObject({ status: 400, code: 'unsupported_model', message });
    const embed = await postJson(`${demo.url}/v1/embeddings`, { model: 'cross', input: 'x' });
    expect(embed.status).toBe(400);
    expect(await refused({ model: 'other' })).toMatchObject({ status: 404, code: 'model_not_found' });
  });
});

test('is listed, has a slot, and is counted', async () => {
  const { data } = (await (await fetch(`${demo.url}/v1/models`)).json()) as { data: object[] };
  expect(data).toContainEqual(
    expect.objectContaining({ id: 'cross', capabilities: ['reranking'], context_length: model.contextSize }),
  );
  const many = rerank({ documents: Array.from({ length: 2000 }, () => 'The harbor is by the sea.') });
  await until(async () =>
    (await slotsOf(demo.url)).some((slot) => slot.state === 'reranking' && slot.processed_tokens > 0),
  );
  await many;
  const metrics = await (await fetch(`${demo.url}/metrics`)).text();
  expect(metrics).toMatch(/winnow_reranked_tokens_total\{model="cross"\} \d+/);
});

test('on demand: an embedding model is no reranker', async () => {
  const asked: string[] = [];
  const golden = new URL('../../../packages/engine/test/fixtures/arch/xlm-roberta/model.gguf', import.meta.url);
  const available = {
    id: 'encoder',
    prepare: async (kind: string) => {
      asked.push(kind);
      const load = async () => ({ kind: 'reranking' as const, model: await loadReranker(fileURLToPath(golden)) });
      return { memoryBytes: 1, load };
    },
  };
  const server = await startServer({ catalog: { list: async () => [available], find: async () => available } });
  const response = await postJson(`${server.url}/v1/rerank`, { query, documents });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { code: 'unsupported_model' } });
  expect(asked).toEqual(['reranking']);
  await server.close();
});
