/** The Messages API through Anthropic's client. */
import Anthropic from '@anthropic-ai/sdk';
import type { ChatPart, Model } from '@winnow/engine';
import { Value } from 'typebox/value';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { chatRequestOf } from '../src/protocols/anthropic/request.js';
import { message, messageEvents } from '../src/protocols/anthropic/response.js';
import { Message, MessageError, MessageStreamEvent } from '../src/protocols/anthropic/schemas.js';
import { demoId, loadDemoModel, postJson, startServer, until, type DemoServer, type SlotInfo } from './demo-server.js';
import { endless } from './fake-models.js';
import { answering } from './scripted-answer.js';

const key = 'a-key-of-the-test';
let model: Model;
let demo: DemoServer;
let client: Anthropic;

beforeAll(async () => {
  model = await loadDemoModel();
  const models = [
    { id: demoId, model },
    { id: 'endless', model: endless(model) },
  ];
  demo = await startServer({ models, apiKeys: [key] }, key);
  client = new Anthropic({ baseURL: demo.url, apiKey: key, maxRetries: 0 });
});

afterAll(async () => {
  await demo?.close();
  await model?.dispose();
});

const question = { role: 'user' as const, content: 'What is the code of Alice?' };
const greedy = { model: demoId, temperature: 0, max_tokens: 12, messages: [question] };

const schema = {
  type: 'object' as const,
  properties: { city: { type: 'string', enum: ['Paris', 'Rome'] } },
  required: ['city'],
  additionalProperties: false,
};
const weather = { name: 'get_weather', description: 'The weather of a city.', input_schema: schema };

test('a message has the text, the end and the usage of the engine', async () => {
  const expected = await model.generate([question], { temperature: 0, maxTokens: 12 }).result();
  const answer = await client.messages.create(greedy);
  expect([...Value.Errors(Message, answer)]).toEqual([]);
  expect(answer.content).toEqual([{ type: 'text', text: expected.text, citations: null }]);
  expect(answer.stop_reason).toBe(expected.finishReason === 'length' ? 'max_tokens' : 'end_turn');
  const { input_tokens: input, cache_read_input_tokens: cached, output_tokens: output } = answer.usage;
  expect([input + (cached ?? 0), output]).toEqual([expected.promptTokens, expected.tokens.length]);
});

test('a stream adds up to the message, and system texts are a system message', async () => {
  const body = { ...greedy, system: [{ type: 'text' as const, text: 'Be short.' }] };
  const system = { role: 'system', content: 'Be short.' };
  const expected = await model.generate([system, question], { temperature: 0, maxTokens: 12 }).result();
  const stream = client.messages.stream(body);
  let text = '';
  stream.on('text', (delta) => (text += delta));
  const final = await stream.finalMessage();
  expect(text).toBe(expected.text);
  const { usage: _usage, id: _id, ...rest } = await client.messages.create(body);
  expect(final).toMatchObject(rest);
  expect(final.usage.output_tokens).toBe(expected.tokens.length);
});

test('stop sequences are named, and the text ends before them', async () => {
  const whole = await client.messages.create(greedy);
  const text = whole.content[0]?.type === 'text' ? whole.content[0].text : '';
  const stop = text.slice(3, 6);
  const answer = await client.messages.create({ ...greedy, stop_sequences: ['never said', stop] });
  expect(answer).toMatchObject({ stop_reason: 'stop_sequence', stop_sequence: stop });
  expect(answer.content).toMatchObject([{ text: text.slice(0, text.indexOf(stop)) }]);
});

test('tools: a forced call, whole and streamed, and its result', async () => {
  const tool_choice = { type: 'any' as const, disable_parallel_tool_use: true };
  const body = { ...greedy, max_tokens: 300, tools: [weather], tool_choice };
  const answer = await client.messages.create(body);
  const [call] = answer.content;
  if (call?.type !== 'tool_use') throw new Error('no call');
  expect(answer.stop_reason).toBe('tool_use');
  expect(call).toMatchObject({
    name: 'get_weather',
    input: { city: expect.stringMatching(/^(Paris|Rome)$/) as string },
  });
  const streamed = await client.messages.stream(body).finalMessage();
  expect(streamed.content).toEqual(answer.content);
  const result = {
    type: 'tool_result' as const,
    tool_use_id: call.id,
    content: [{ type: 'text' as const, text: 'warm' }],
  };
  const messages = [
    question,
    { role: 'assistant' as const, content: answer.content as Anthropic.ContentBlockParam[] },
    { role: 'user' as const, content: [result, { type: 'text' as const, text: 'So?' }] },
  ];
  const asked = { model: demoId, tools: [weather], messages };
  expect((await client.messages.create({ ...asked, max_tokens: 2 })).content).toHaveLength(1);
  const none = await client.messages.create({ ...body, max_tokens: 5, tool_choice: { type: 'none' } });
  expect(none.content.map(({ type }) => type)).toEqual(['text']);
});

test('an output format constrains the text', async () => {
  const format = { type: 'json_schema' as const, schema };
  const answer = await client.messages.create({ ...greedy, max_tokens: 300, output_config: { format } });
  const [block] = answer.content;
  expect(JSON.parse(block?.type === 'text' ? block.text : '')).toEqual({
    city: expect.stringMatching(/^(Paris|Rome)$/) as string,
  });
});

test('count_tokens counts the prompt with its tools', async () => {
  const { messages } = greedy;
  const { input_tokens: plain } = await client.messages.countTokens({ model: demoId, messages });
  expect(plain).toBe(model.encodePrompt([question]).length);
  const { input_tokens: more } = await client.messages.countTokens({ model: demoId, messages, tools: [weather] });
  expect(more).toBeGreaterThan(plain);
});

test('thinking is reasoning for the model, in both directions', () => {
  const blocks = [
    { type: 'thinking', thinking: 'hm' },
    { type: 'text', text: 'So' },
  ];
  const messages = [question, { role: 'assistant' as const, content: blocks }, question];
  const thinking = { type: 'enabled' as const, budget_tokens: 5 };
  expect(chatRequestOf({ messages, thinking, output_config: { effort: 'low' } })).toMatchObject({
    ...{ enableThinking: true, reasoningEffort: 'low', maxReasoningTokens: 5 },
    messages: [question, { role: 'assistant', content: 'So', reasoning: 'hm' }, question],
  });
  expect(chatRequestOf({ messages: [question], thinking: { type: 'disabled' } }).enableThinking).toBe(false);
});

test('leaving a stream frees its slot', async () => {
  const stream = client.messages.stream({ ...greedy, model: 'endless', max_tokens: 2000 });
  for await (const _event of stream) break;
  stream.abort();
  const idle = async (): Promise<boolean> => {
    const response = await fetch(`${demo.url}/slots`, { headers: { authorization: `Bearer ${key}` } });
    return ((await response.json()) as SlotInfo[]).every(({ state }) => state === 'idle');
  };
  await until(idle);
  expect(model.metrics().numSessions).toBe(0);
});

const image = { type: 'image', source: { type: 'url', url: 'https://a.example/b.png' } };
const unknownResult = { type: 'tool_result', tool_use_id: 'none', content: 'x' };
const of = (role: string, content: unknown): object => ({ ...greedy, messages: [question, { role, content }] });

/** A body, its status, and part of the message. */
const refused: readonly (readonly [name: string, body: object, status: number, text: string])[] = [
  ['no messages', { model: demoId, max_tokens: 1 }, 400, 'messages'],
  ['no limit', { model: demoId, messages: [question] }, 400, 'max_tokens'],
  ['a field of another API', { ...greedy, n: 1 }, 400, 'n'],
  ['an image by its address', of('user', [image]), 400, "must be 'base64'"],
  ['a result of no call', of('user', [unknownResult]), 400, 'tool_use_id'],
  ['an answer already begun', of('assistant', 'It'), 400, 'last message'],
  ['a tool of the server', { ...greedy, tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, 400, 'web_'],
  ['an unknown tool', { ...greedy, tools: [weather], tool_choice: { type: 'tool', name: 'x' } }, 400, 'tool_choice'],
  ['another model', { ...greedy, model: 'other' }, 404, 'other'],
  ['a long prompt', of('user', 'sea '.repeat(5000)), 400, 'context'],
];

test.each(refused)('errors have the shape of the API: %s', async (_name, body, status, text) => {
  for (const stream of [false, true]) {
    const response = await postJson(`${demo.url}/v1/messages`, { ...body, stream }, { 'x-api-key': key });
    const error = (await response.json()) as MessageError;
    expect([...Value.Errors(MessageError, error)]).toEqual([]);
    expect(response.status).toBe(status);
    expect(error.error.type).toBe(status === 404 ? 'not_found_error' : 'invalid_request_error');
    expect(error.error.message).toContain(text);
  }
});

test('the client throws its own classes', async () => {
  const locked = new Anthropic({ baseURL: demo.url, apiKey: 'wrong', maxRetries: 0 });
  await expect(locked.messages.create(greedy)).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
  await expect(client.messages.create({ ...greedy, model: 'other' })).rejects.toBeInstanceOf(Anthropic.NotFoundError);
  const unknown = await postJson(`${demo.url}/v1/messages/batches`, {}, { 'x-api-key': key });
  expect([unknown.status, await unknown.json()]).toMatchObject([404, { type: 'error' }]);
});

describe('reasoning, text and calls are blocks in their order', () => {
  const call = { id: 'call00001', name: 'f' };
  const parts: ChatPart[] = [
    { type: 'reasoning', text: 'I ' },
    { type: 'reasoning', text: 'think' },
    { type: 'text', text: 'So' },
    { type: 'text', text: ':' },
    { type: 'tool-call-start', ...call },
    { type: 'tool-call-delta', id: call.id, arguments: '{"a"' },
    { type: 'tool-call-delta', id: call.id, arguments: ':1}' },
    { type: 'tool-call', ...call, arguments: '{"a":1}', isComplete: true },
  ];
  const use = { type: 'tool_use', ...call, input: { a: 1 }, caller: { type: 'direct' } };
  const content = [
    { type: 'thinking', thinking: 'I think', signature: '' },
    { type: 'text', text: 'So:', citations: null },
    use,
  ];

  test('whole', async () => {
    const { job, chat } = answering(parts);
    expect(await message(job, chat, model)).toMatchObject({
      ...{ content, stop_reason: 'tool_use' },
      usage: { input_tokens: 1, cache_read_input_tokens: 2, output_tokens: parts.length },
    });
  });

  test('as events', async () => {
    const { job, chat } = answering(parts);
    const blocks: Record<string, unknown>[] = [];
    const types: string[] = [];
    for await (const text of messageEvents(job, chat, model)) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)\n\n$/.exec(text) ?? [];
      const event = JSON.parse(data as string) as MessageStreamEvent;
      expect([...Value.Errors(MessageStreamEvent, event)]).toEqual([]);
      expect(event.type).toBe(name);
      types.push(event.type);
      if (event.type === 'content_block_start') blocks.push({ ...event.content_block, json: '' });
      if (event.type !== 'content_block_delta') continue;
      expect(event.index).toBe(blocks.length - 1);
      const block = blocks[event.index] as Record<string, string>;
      if (event.delta.type === 'text_delta') block['text'] += event.delta.text;
      else if (event.delta.type === 'thinking_delta') block['thinking'] += event.delta.thinking;
      else block['json'] += event.delta.partial_json;
    }
    expect(blocks).toEqual([
      ...content.slice(0, 2).map((block) => ({ ...block, json: '' })),
      { ...use, input: {}, json: '{"a":1}' },
    ]);
    const count = (type: string): number => types.filter((name) => name === type).length;
    expect([count('content_block_start'), count('content_block_stop')]).toEqual([3, 3]);
    expect([types[0], ...types.slice(-2)]).toEqual(['message_start', 'message_delta', 'message_stop']);
  });
});
