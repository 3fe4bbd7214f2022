/** Images in requests of three protocols, on a tiny LLaVA with random weights. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { loadModel, type GenerationResult, type Model } from '@winnow/engine';
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
