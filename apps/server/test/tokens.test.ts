/** What a model reads: tokens of texts, and prompts of conversations. */
import type { Model } from '@winnow/engine';
import { Value } from 'typebox/value';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApplyTemplateResponse, DetokenizeResponse, TokenizeResponse } from '../src/schemas/tokens.js';
import { demoId, loadDemoModel, postJson, startServer, type DemoServer } from './demo-server.js';

let model: Model;
let demo: DemoServer;

beforeAll(async () => {
  model = await loadDemoModel();
  demo = await startServer({ models: [{ id: demoId, model }] });
});

afterAll(async () => {
  await demo?.close();
  await model?.dispose();
});

const post = async (path: string, body: object): Promise<unknown> =>
  (await postJson(`${demo.url}${path}`, body)).json();

const text = 'The old man, 船 and sea';

test('a text becomes tokens, with and without special ones, and tokens become the text', async () => {
  const plain = Array.from(model.tokenizer.encode(text, { addSpecialTokens: false }));
  expect(await post('/tokenize', { content: text })).toEqual({ tokens: plain });
  const special = await post('/tokenize', { content: text, add_special: true });
  expect(special).toEqual({ tokens: Array.from(model.encodePrompt(text)) });
  expect([...Value.Errors(TokenizeResponse, special)]).toEqual([]);
  const back = await post('/detokenize', { model: demoId, tokens: plain });
  expect(back).toEqual({ content: text });
  expect([...Value.Errors(DetokenizeResponse, back)]).toEqual([]);
});

test('pieces are text, or bytes of a part of a character', async () => {
  const answer = (await post('/tokenize', { content: text, with_pieces: true })) as {
    tokens: { id: number; piece: string | number[] }[];
  };
  expect([...Value.Errors(TokenizeResponse, answer)]).toEqual([]);
  const bytes = answer.tokens.flatMap(({ piece }) => (typeof piece === 'string' ? [...Buffer.from(piece)] : piece));
  expect(Buffer.from(bytes).toString().trim()).toBe(text);
  expect(answer.tokens.some(({ piece }) => typeof piece !== 'string')).toBe(true);
});

test('a conversation becomes the prompt of /v1/chat/completions', async () => {
  const messages = [{ role: 'user', content: 'Hello' }];
  const answer = await post('/apply-template', { messages });
  expect(answer).toMatchObject({
    tokens: Array.from(model.encodePrompt(messages)),
    prompt: expect.stringContaining('Hello') as string,
  });
  expect([...Value.Errors(ApplyTemplateResponse, answer)]).toEqual([]);
});

test.each([
  ['/tokenize', {}, 'content'],
  ['/tokenize', { content: 'x', made_up: 1 }, 'made_up'],
  ['/detokenize', { tokens: [5, 1e6] }, 'tokens[1]'],
  ['/detokenize', { tokens: [-1] }, 'tokens[0]'],
  ['/apply-template', { messages: [] }, 'messages'],
])('%s refuses %j', async (path, body, param) => {
  expect(await post(path, body)).toMatchObject({ error: { param } });
});
