/** Images in requests of three protocols, on a tiny LLaVA with random weights. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import Anthropic from '@anthropic-ai/sdk';
import { loadModel, type GenerationResult, type Model } from '@winnow/engine';
import { Ollama } from 'ollama';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { demoId, loadDemoModel, postJson, startServer, type DemoServer } from './demo-server.js';

const packages = new URL('../../../packages/', import.meta.url);
const picture = new Uint8Array(readFileSync(new URL('vision/src/__fixtures__/wide.png', packages)));
const base64 = Buffer.from(picture).toString('base64');
const url = `data:image/png;base64,${base64}`;
const content = 'a picture of the sea';

let model: Model;
let blind: Model;
let demo: DemoServer;
let expected: GenerationResult;
beforeAll(async () => {
  model = await loadModel(fileURLToPath(new URL('engine/test/fixtures/images/llava', packages)), { threads: 1 });
  blind = await loadDemoModel();
  demo = await startServer({
    models: [
      { id: 'llava', model },
      { id: demoId, model: blind },
    ],
  });
  const messages = [{ role: 'user', content, images: [picture] }];
  expected = await model.generate(messages, { temperature: 0, maxTokens: 4 }).result();
});
afterAll(async () => {
  await demo.close();
  await model.dispose();
  await blind.dispose();
});

const shared = { model: 'llava', temperature: 0, max_tokens: 4 };
const textPart = { type: 'text', text: content };
const openAi = (parts: readonly object[], id = 'llava'): object => ({
  ...shared,
  model: id,
  messages: [{ role: 'user', content: parts }],
});
const imagePart = { type: 'image_url', image_url: { url } };
const source = { type: 'base64', media_type: 'image/png', data: base64 };

test.each([
  ['/v1/chat/completions', openAi([imagePart, textPart]), 'prompt_tokens'],
  [
    '/api/generate',
    {
      ...{ model: 'llava', stream: false, options: { temperature: 0, num_predict: 4 } },
      ...{ prompt: content, images: [base64] },
    },
    'prompt_eval_count',
  ],
  [
    '/v1/messages',
    { ...shared, messages: [{ role: 'user', content: [{ type: 'image', source }, textPart] }] },
    'input_tokens',
  ],
  [
    '/api/chat',
    {
      ...{ model: 'llava', stream: false, options: { temperature: 0, num_predict: 4 } },
      messages: [{ role: 'user', content, images: [base64] }],
    },
    'prompt_eval_count',
  ],
])('%s answers to an image', async (path, body, counted) => {
  const answer = (await (await postJson(`${demo.url}${path}`, body)).json()) as Record<string, object>;
  const text = answer['choices'] ?? answer['content'] ?? answer['message'] ?? answer['response'];
  expect(JSON.stringify(text)).toContain(JSON.stringify(expected.text));
  expect({ ...answer, ...answer['usage'] }).toMatchObject({ [counted]: expected.promptTokens });
});

test.each([
  [
    'a URL that would have to be fetched',
    openAi([{ ...imagePart, image_url: { url: 'http://127.0.0.1/a.png' } }]),
    'data: URL',
  ],
  [
    'text that is not base64',
    openAi([{ ...imagePart, image_url: { url: 'data:image/png;base64,a_b=' } }]),
    'file in base64',
  ],
  [
    'a file that is no image',
    openAi([{ ...imagePart, image_url: { url: 'data:image/png;base64,AQID' } }]),
    'PNG, JPEG or WebP',
  ],
  ['a model without an image encoder', openAi([imagePart, textPart], demoId), 'takes none'],
])('%s is refused', async (_name, body, message) => {
  const response = await postJson(`${demo.url}/v1/chat/completions`, body);
  expect(await response.json()).toMatchObject({ error: { message: expect.stringContaining(message) as string } });
  expect(response.status).toBe(400);
});

const question = { role: 'user' as const, content, images: [picture] };
const greedy = { temperature: 0, maxTokens: 4 };

test('responses: images through the client of OpenAI, also in a conversation that continues', async () => {
  const parts = [
    { type: 'input_image' as const, image_url: url, detail: 'auto' as const },
    { type: 'input_text' as const, text: content },
  ];
  const body = { model: 'llava', temperature: 0, max_output_tokens: 4 };
  const first = await demo.client.responses.create({ ...body, input: [{ role: 'user', content: parts }] });
  expect(first.output_text).toBe(expected.text);
  expect(first.usage?.input_tokens).toBe(expected.promptTokens);
  const next = { ...body, input: content, previous_response_id: first.id };
  const second = await demo.client.responses.create(next);
  const messages = [question, { role: 'assistant', content: expected.text }, { role: 'user', content }];
  const continued = await model.generate(messages, greedy).result();
  expect(second.output_text).toBe(continued.text);
  expect(second.usage?.input_tokens).toBe(continued.promptTokens);
  const refused = demo.client.responses.create({ ...next, model: demoId });
  await expect(refused).rejects.toMatchObject({
    status: 400,
    message: expect.stringContaining('takes none') as string,
  });
});

test('messages and chats: images through the clients of Anthropic and Ollama', async () => {
  const anthropic = new Anthropic({ baseURL: demo.url, apiKey: 'none', maxRetries: 0 });
  const image = {
    type: 'image' as const,
    source: { ...source, type: 'base64' as const, media_type: 'image/png' as const },
  };
  const message = await anthropic.messages.create({
    ...{ model: 'llava', temperature: 0, max_tokens: 4 },
    messages: [{ role: 'user', content: [image, { type: 'text', text: content }] }],
  });
  expect(message.content).toMatchObject([{ type: 'text', text: expected.text }]);
  const ollama = new Ollama({ host: demo.url });
  const options = { temperature: 0, num_predict: 4 };
  const answer = await ollama.chat({ model: 'llava', messages: [question], options });
  expect(answer.message.content).toBe(expected.text);
  expect(answer.prompt_eval_count).toBe(expected.promptTokens);
});

test('lists of models say which ones take images', async () => {
  expect(await demo.client.models.retrieve('llava')).toMatchObject({ capabilities: ['chat', 'completion', 'vision'] });
  expect(await demo.client.models.retrieve(demoId)).toMatchObject({ capabilities: ['chat', 'completion'] });
  const ollama = new Ollama({ host: demo.url });
  expect((await ollama.show({ model: 'llava' })).capabilities).toEqual(['completion', 'tools', 'vision']);
});
