/** The OpenAPI document matches the code, and responses match the document. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import createCompilerFactory from '@fastify/ajv-compiler';
import { loadEmbeddingModel, type EmbeddingModel, type Model } from '@winnow/engine';
import type { JobStore } from '@winnow/jobs';
import { createFolderBlobStore, openSqliteJobStore } from '@winnow/jobs/node';
import { demoModelUrl } from '@winnow/demo-model';
import type { TSchema } from 'typebox';
import { Value } from 'typebox/value';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ChatCompletion, ChatCompletionChunk } from '../src/schemas/chat.js';
import { sharedSchemas } from '../src/openapi.js';
import { ErrorBody } from '../src/schemas/common.js';
import { Completion } from '../src/schemas/completions.js';
import { EmbeddingList } from '../src/schemas/embeddings.js';
import { Health, ModelList, ModelObject, SlotList } from '../src/schemas/status.js';
import { demoId, loadDemoModel, postJson, startServer, type DemoServer } from './demo-server.js';

let model: Model;
let embedder: EmbeddingModel;
let demo: DemoServer;
let folder: string;
let jobs: JobStore;

beforeAll(async () => {
  model = await loadDemoModel();
  embedder = await loadEmbeddingModel(demoModelUrl, { threads: 1, pooling: 'mean' });
  folder = mkdtempSync(join(tmpdir(), 'winnow-openapi-'));
  jobs = await openSqliteJobStore(join(folder, 'jobs.db'));
  demo = await startServer({
    models: [{ id: demoId, model }],
    embeddingModels: [{ id: demoId, model: embedder }],
    batches: { jobs, blobs: createFolderBlobStore(join(folder, 'blobs')) },
  });
});

afterAll(async () => {
  await demo?.close();
  await jobs?.close();
  rmSync(folder, { recursive: true, force: true });
  await model?.dispose();
  await embedder?.dispose();
});

const published = new URL('../openapi.json', import.meta.url);

/** Every `$ref` of a document. */
function* refsOf(value: unknown): Iterable<string> {
  if (typeof value !== 'object' || value === null) return;
  for (const [key, child] of Object.entries(value)) {
    if (key === '$ref') yield child as string;
    else yield* refsOf(child);
  }
}

describe('the document', () => {
  test('equals the committed one (WINNOW_UPDATE=1 writes it)', async () => {
    const served: unknown = await (await fetch(`${demo.url}/openapi.json`)).json();
    expect(served).toEqual(JSON.parse(JSON.stringify(demo.server.openApi())));
    if (process.env['WINNOW_UPDATE'] === '1') writeFileSync(published, `${JSON.stringify(served, null, 2)}\n`);
    expect(existsSync(published)).toBe(true);
    expect(JSON.parse(readFileSync(published, 'utf8'))).toEqual(served);
  });

  test('has valid references, and every operation once', () => {
    const document = demo.server.openApi() as {
      paths: Record<string, Record<string, { operationId: string }>>;
      components: { schemas: Record<string, unknown> };
    };
    const refs = new Set(refsOf(document));
    const known = new Set(Object.keys(document.components.schemas).map((name) => `#/components/schemas/${name}`));
    expect([...refs].filter((ref) => !known.has(ref))).toEqual([]);
    const ids = Object.values(document.paths).flatMap((path) => Object.values(path).map((entry) => entry.operationId));
    expect(ids.toSorted()).toEqual([
      'applyTemplate',
      'cancelBatch',
      'countMessageTokens',
      'createBatch',
      'createChatCompletion',
      'createCompletion',
      'createEmbedding',
      'createFile',
      'createMessage',
      'createResponse',
      'deleteFile',
      'deleteResponse',
      'detokenize',
      'downloadFile',
      'health',
      'jobs',
      'listBatches',
      'listFiles',
      'listModels',
      'listSlots',
      'metrics',
      'ollamaChat',
      'ollamaEmbed',
      'ollamaGenerate',
      'ollamaPs',
      'ollamaShow',
      'ollamaTags',
      'ollamaVersion',
      'rerank',
      'rerankUnversioned',
      'rerankV2',
      'retrieveBatch',
      'retrieveFile',
      'retrieveModel',
      'retrieveResponse',
      'tokenize',
    ]);
  });
});

test('the schemas are valid', () => {
  const compile = createCompilerFactory();
  const validate = (schemas: readonly object[]): unknown => compile({ ...schemas } as never, { customOptions: {} });
  validate(sharedSchemas);
  expect(() => validate([{ $id: 'Broken', properties: [] }])).toThrow('schema is invalid');
});

test('the body of every operation is checked against its schema', async () => {
  const { paths } = demo.server.openApi() as { paths: Record<string, Record<string, { requestBody?: object }>> };
  const withBody = Object.entries(paths).filter(([path, { post }]) => post?.requestBody && path !== '/v1/files');
  expect(withBody.length).toBeGreaterThan(12);
  for (const [path] of withBody)
    expect([path, (await postJson(`${demo.url}${path}`, '[]')).status]).toEqual([path, 400]);
});

describe('responses match their schemas', () => {
  const chat = { model: demoId, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 3 };
  const text = { model: demoId, prompt: 'Hi', max_tokens: 3 };

  const expectValid = (schema: TSchema, value: unknown): void => {
    expect([...Value.Errors(schema, value)]).toEqual([]);
  };

  test.each<[string, TSchema, object | undefined]>([
    ['/v1/chat/completions', ChatCompletion, chat],
    ['/v1/chat/completions', ChatCompletion, { ...chat, logprobs: true, top_logprobs: 2 }],
    ['/v1/completions', Completion, text],
    ['/v1/completions', Completion, { ...text, logprobs: 2, prompt: ['a', 'b'] }],
    ['/v1/embeddings', EmbeddingList, { model: demoId, input: 'Hi' }],
    ['/v1/embeddings', EmbeddingList, { model: demoId, input: ['Hi'], encoding_format: 'base64' }],
    ['/v1/completions', ErrorBody, { ...text, model: 'other' }],
    ['/v1/completions', ErrorBody, {}],
    ['/v1/models', ModelList, undefined],
    [`/v1/models/${demoId}`, ModelObject, undefined],
    ['/v1/models/other', ErrorBody, undefined],
    ['/health', Health, undefined],
    ['/slots', SlotList, undefined],
  ])('%s', async (path, schema, body) => {
    const url = `${demo.url}${path}`;
    const response = body === undefined ? await fetch(url) : await postJson(url, body);
    expectValid(schema, await response.json());
  });

  test.each<[string, TSchema, object]>([
    ['/v1/chat/completions', ChatCompletionChunk, { ...chat, logprobs: true, top_logprobs: 1 }],
    ['/v1/chat/completions', ChatCompletionChunk, chat],
    ['/v1/completions', Completion, { ...text, logprobs: 1 }],
    ['/v1/completions', Completion, text],
  ])('%s in parts', async (path, schema, body) => {
    const asked = { ...body, stream: true, stream_options: { include_usage: true } };
    const response = await postJson(`${demo.url}${path}`, asked);
    expect(response.headers.get('content-type')).toMatch(/^text\/event-stream/);
    const events = (await response.text()).split('\n\n');
    expect(events.splice(-2)).toEqual(['data: [DONE]', '']);
    expect(events.length).toBeGreaterThan(2);
    for (const event of events) {
      expect(event.startsWith('data: ')).toBe(true);
      expectValid(schema, JSON.parse(event.slice('data: '.length)));
    }
  });
});
