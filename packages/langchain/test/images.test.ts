/** Images in messages, on a tiny LLaVA with random weights. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { HumanMessage, SystemMessage, type MessageContent } from '@langchain/core/messages';
import { loadModel, type Model } from '@winnow/engine';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ChatWinnow } from '../src/index.js';

const packages = new URL('../../', import.meta.url);
const picture = new Uint8Array(readFileSync(new URL('vision/src/__fixtures__/wide.png', packages)));
const data = Buffer.from(picture).toString('base64');
const url = `data:image/png;base64,${data}`;
const text = 'a picture of the sea';

let model: Model;
let chat: ChatWinnow;
beforeAll(async () => {
  model = await loadModel(fileURLToPath(new URL('engine/test/fixtures/images/llava', packages)), { threads: 1 });
  chat = new ChatWinnow({ model, temperature: 0, maxTokens: 4 });
});
afterAll(() => model.dispose());

test.each<[string, object]>([
  ['the part of OpenAI', { type: 'image_url', image_url: { url, detail: 'auto' } }],
  ['its short form', { type: 'image_url', image_url: url }],
  ['a standard block with base64', { type: 'image', mimeType: 'image/png', data }],
  ['one with bytes', { type: 'image', mimeType: 'image/png', data: picture }],
  ['one with a data: URL', { type: 'image', url }],
  ['a block of LangChain 0.3', { type: 'image', source_type: 'base64', mime_type: 'image/png', data }],
])('%s is an image of the message', async (_name, part) => {
  const content = [part, { type: 'text', text }] as MessageContent;
  const answer = await chat.invoke([new HumanMessage({ content })]);
  const messages = [{ role: 'user', content: text, images: [picture] }];
  const expected = await model.generate(messages, { temperature: 0, maxTokens: 4 }).result();
  expect(answer.text).toBe(expected.text);
  expect(answer.usage_metadata).toMatchObject({ input_tokens: expected.promptTokens });
});

test('images that would have to be fetched, are not base64, or are not of the user are refused', async () => {
  const invoke = (message: HumanMessage | SystemMessage): Promise<unknown> => chat.invoke([message]);
  const human = (part: object): HumanMessage => new HumanMessage({ content: [part] as MessageContent });
  const place = 'messages[0].content[0]: expected';
  const bytes = `${place} an image as bytes or in base64`;
  await expect(invoke(human({ type: 'image', url: 'https://a.example/b.png' }))).rejects.toThrow(
    `${bytes}, since nothing is fetched, got the URL https://a.example/b.png`,
  );
  await expect(invoke(human({ type: 'image', fileId: 'f' }))).rejects.toThrow(
    `${bytes}, since nothing is fetched, got`,
  );
  await expect(invoke(human({ type: 'image', mimeType: 'image/png', data: '*' }))).rejects.toThrow(bytes);
  await expect(invoke(human({ type: 'image', mimeType: 'image/png', data: 'AQID' }))).rejects.toThrow(
    'PNG, JPEG or WebP',
  );
  const system = new SystemMessage({ content: [{ type: 'image', url }] as MessageContent });
  await expect(invoke(system)).rejects.toThrow(`${place} text, got image`);
});
