/** Ollama's API through its client. */
import { demoModelUrl } from '@winnow/demo-model';
import { loadEmbeddingModel, type ChatPart, type EmbeddingModel, type Model } from '@winnow/engine';
import { Ollama, type ChatResponse } from 'ollama';
import type { TSchema } from 'typebox';
import { Value } from 'typebox/value';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { chatCallOf } from '../src/protocols/ollama/request.js';
import { answerLines, wholeAnswer } from '../src/protocols/ollama/response.js';
import * as schemas from '../src/protocols/ollama/schemas.js';
import { demoId, loadDemoModel, postJson, slotsOf, startServer, until, type DemoServer } from './demo-server.js';
import { endless } from './fake-models.js';
import { answering } from './scripted-answer.js';

let model: Model;
let embedder: EmbeddingModel;
let demo: DemoServer;
let client: Ollama;

beforeAll(async () => {
  model = await loadDemoModel();
  embedder = await loadEmbeddingModel(demoModelUrl, { threads: 1, pooling: 'mean' });
  demo = await startServer({
    models: [
      { id: demoId, model },
      { id: 'endless', model: endless(model) },
    ],
    embeddingModels: [{ id: 'vectors', model: embedder }],
  });
  client = new Ollama({ host: demo.url });
});

afterAll(async () => {
  await demo?.close();
  await model?.dispose();
  await embedder?.dispose();
});

const question = { role: 'user' as const, content: 'What is the code of Alice?' };
const greedy = { model: demoId, messages: [question], options: { temperature: 0, num_predict: 12 } };

async function valid(schema: TSchema, path: string, body?: object): Promise<unknown> {
  const response = body === undefined ? await fetch(`${demo.url}${path}`) : await postJson(`${demo.url}${path}`, body);
  const value: unknown = await response.json();
  expect([...Value.Errors(schema, value)]).toEqual([]);
  return value;
}

test('chat: the answer of the engine, whole and in lines', async () => {
  const expected = await model.generate([question], { temperature: 0, maxTokens: 12 }).result();
  const answer = await client.chat(greedy);
  expect(answer.message).toEqual({ role: 'assistant', content: expected.text });
  expect(answer).toMatchObject({
    ...{ model: demoId, done: true, done_reason: expected.finishReason === 'length' ? 'length' : 'stop' },
    ...{ prompt_eval_count: expected.promptTokens, eval_count: expected.tokens.length },
  });
  let text = '';
  let last: ChatResponse | undefined;
  for await (const part of await client.chat({ ...greedy, stream: true })) {
    text += part.message.content;
    expect(part.done).toBe(part.done_reason !== undefined);
    last = part;
  }
  expect(text).toBe(expected.text);
  expect(last?.eval_count).toBe(expected.tokens.length);
  await valid(schemas.OllamaChatResponse, '/api/chat', { ...greedy, stream: false, logprobs: true, top_logprobs: 2 });
  // without "stream" an answer is a stream
  const lines = (await (await postJson(`${demo.url}/api/chat`, { ...greedy, stream: undefined })).text())
    .trimEnd()
    .split('\n');
  expect(lines.length).toBeGreaterThan(2);
  for (const line of lines) expect([...Value.Errors(schemas.OllamaChatResponse, JSON.parse(line))]).toEqual([]);
});

test('generate: a prompt is a conversation, or raw text', async () => {
  const prompt = 'The old man looked at the sea and';
  const options = { temperature: 0, num_predict: 6 };
  const ask = { model: `${demoId}:latest`, prompt, options };
  const system = { role: 'system', content: 'Be short.' };
  const engine = { temperature: 0, maxTokens: 6 };
  const asked = await model.generate([system, { role: 'user', content: prompt }], engine).result();
  expect((await client.generate({ ...ask, system: system.content })).response).toBe(asked.text);
  const raw = await model.generate(prompt, engine).result();
  let text = '';
  for await (const { response = '' } of await client.generate({ ...ask, raw: true, stream: true })) text += response;
  expect(text).toBe(raw.text);
  await valid(schemas.OllamaGenerateResponse, '/api/generate', { ...ask, stream: false });
  expect(await client.generate({ model: demoId, prompt: '' })).toMatchObject({ done: true, done_reason: 'load' });
});

test('formats and tools constrain the answer', async () => {
  const parameters = {
    type: 'object',
    properties: { city: { enum: ['Paris'] } },
    required: ['city'],
    additionalProperties: false,
  };
  const options = { temperature: 0, num_predict: 300 };
  const { message } = await client.chat({ ...greedy, options, format: parameters });
  expect(JSON.parse(message.content)).toEqual({ city: 'Paris' });
  const call = { function: { name: 'f', arguments: { city: 'Paris' } } };
  const tools = [{ type: 'function', function: { name: 'f', description: 'A tool.', parameters } }];
  const messages = [
    question,
    { role: 'assistant', content: '', tool_calls: [call] },
    { role: 'tool', tool_name: 'f', content: 'warm' },
  ];
  const answer = await client.chat({ ...greedy, options: { num_predict: 2 }, tools, messages });
  expect(answer.eval_count).toBeLessThanOrEqual(2);
});

test('reasoning of earlier answers reaches the template', () => {
  const thinking = { role: 'assistant' as const, content: 'So', thinking: 'hm' };
  const { request } = chatCallOf({ messages: [question, thinking] }, { model });
  expect(request.messages).toEqual([question, { role: 'assistant', content: 'So', reasoning: 'hm' }]);
});

test('reasoning and calls have fields of their own', async () => {
  const call = { id: 'call00001', name: 'f' };
  const parts: ChatPart[] = [
    { type: 'reasoning', text: 'hm' },
    { type: 'text', text: 'So' },
    { type: 'tool-call-start', ...call },
    { type: 'tool-call-delta', id: call.id, arguments: '{"a":1}' },
    { type: 'tool-call', ...call, arguments: '{"a":1}', isComplete: true },
  ];
  const message = { content: 'So', thinking: 'hm', tool_calls: [{ function: { name: 'f', arguments: { a: 1 } } }] };
  const whole = answering(parts);
  expect(await wholeAnswer('chat', whole.job, whole.chat, model)).toMatchObject({ message, done: true });
  const { job, chat } = answering(parts);
  const found: Record<string, unknown> = {};
  for await (const line of answerLines('chat', job, chat, model)) {
    const { message: part } = JSON.parse(line) as ChatResponse;
    for (const [name, value] of Object.entries(part)) {
      found[name] = typeof value === 'string' ? `${(found[name] as string | undefined) ?? ''}${value}` : value;
    }
  }
  expect(found).toMatchObject(message);
});

test('embed: vectors of texts, cut at the context unless that is refused', async () => {
  const texts = ['A man is dancing.', 'The sea.'];
  const { embeddings } = await client.embed({ model: 'vectors', input: texts });
  expect(embeddings.map((vector) => Float32Array.from(vector))).toEqual(await embedder.embed(texts));
  await valid(schemas.OllamaEmbedResponse, '/api/embed', { model: 'vectors', input: 'The sea.' });
  const long = { model: 'vectors', input: 'sea '.repeat(3000) };
  expect((await client.embed(long)).embeddings).toHaveLength(1);
  await expect(client.embed({ ...long, truncate: false })).rejects.toThrow('context');
});

test('models are listed and shown', async () => {
  const { models } = await client.list();
  expect(models.map(({ name }) => name)).toEqual([demoId, 'endless', 'vectors']);
  expect((await client.ps()).models).toHaveLength(3);
  expect(await client.show({ model: demoId })).toMatchObject({
    capabilities: ['completion', 'tools'],
    model_info: { [`${model.config.architecture}.context_length`]: model.contextSize },
  });
  expect((await client.version()).version).toMatch(/^\d+\.\d+\.\d+$/);
  await valid(schemas.OllamaModelList, '/api/tags');
  await valid(schemas.OllamaShowResponse, '/api/show', { model: 'vectors' });
  await valid(schemas.OllamaVersion, '/api/version');
});

test('an abort frees the slot', async () => {
  const stream = await client.chat({ ...greedy, model: 'endless', options: {}, stream: true });
  await expect(
    (async () => {
      for await (const _part of stream) stream.abort();
    })(),
  ).rejects.toThrow('abort');
  await until(async () => (await slotsOf(demo.url)).every(({ state }) => state === 'idle'));
});

test.each<[string, string, object, number, string]>([
  ['an unknown model', '/api/chat', { ...greedy, model: 'other' }, 404, 'other'],
  ['an unknown option', '/api/chat', { ...greedy, options: { made_up: 1 } }, 400, 'made_up'],
  ['a sampler that does not exist', '/api/chat', { ...greedy, options: { mirostat: 2 } }, 400, 'mirostat'],
  ['a context that is too large', '/api/chat', { ...greedy, options: { num_ctx: 1e6 } }, 400, 'num_ctx'],
  ['an image', '/api/generate', { model: demoId, prompt: 'Hi', images: ['AAAA'] }, 400, 'images'],
  ['no body', '/api/embed', {}, 400, 'input'],
  ['an unknown route', '/api/push', {}, 404, '/api/push'],
])('errors: %s', async (_name, path, body, status, text) => {
  const response = await postJson(`${demo.url}${path}`, body);
  const error: unknown = await response.json();
  expect([...Value.Errors(schemas.OllamaError, error)]).toEqual([]);
  expect(response.status).toBe(status);
  expect((error as { error: string }).error).toContain(text);
});
