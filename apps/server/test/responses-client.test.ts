/** The Responses API through OpenAI's client. */
import type { ChatPart, Model } from '@winnow/engine';
import OpenAI from 'openai';
import { Value } from 'typebox/value';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { callOf } from '../src/protocols/responses/request.js';
import { ResponseRun } from '../src/protocols/responses/response.js';
import { ResponseObject, ResponseStreamEvent, type ResponseRequest } from '../src/protocols/responses/schemas.js';
import { ResponseStore } from '../src/protocols/responses/store.js';
import { demoId, loadDemoModel, postJson, slotsOf, startServer, until, type DemoServer } from './demo-server.js';
import { endless } from './fake-models.js';
import { answering } from './scripted-answer.js';

let model: Model;
let demo: DemoServer;

beforeAll(async () => {
  model = await loadDemoModel();
  const models = [
    { id: demoId, model },
    { id: 'endless', model: endless(model) },
  ];
  demo = await startServer({ models });
});

afterAll(async () => {
  await demo?.close();
  await model?.dispose();
});

const input = 'What is the code of Alice?';
const question = { role: 'user', content: input };
const greedy = { model: demoId, temperature: 0, max_output_tokens: 12, input };

test('a response has the text, the status and the usage of the engine', async () => {
  const system = { role: 'system', content: 'Be short.' };
  const expected = await model.generate([system, question], { temperature: 0, maxTokens: 12 }).result();
  const answer = await demo.client.responses.create({ ...greedy, instructions: system.content });
  expect([...Value.Errors(ResponseObject, answer)]).toEqual([]);
  expect(answer.output_text).toBe(expected.text);
  const isCut = expected.finishReason === 'length';
  expect(answer.status).toBe(isCut ? 'incomplete' : 'completed');
  expect(answer.incomplete_details).toEqual(isCut ? { reason: 'max_output_tokens' } : null);
  expect(answer.usage).toMatchObject({ input_tokens: expected.promptTokens, output_tokens: expected.tokens.length });
});

test('the events of a stream add up to the response', async () => {
  const whole = await demo.client.responses.create(greedy);
  const body = {
    ...greedy,
    stream: true as const,
    include: ['message.output_text.logprobs' as const],
    top_logprobs: 2,
  };
  let [text, numEvents, numLogprobs] = ['', 0, 0];
  let last: OpenAI.Responses.ResponseStreamEvent | undefined;
  for await (const event of await demo.client.responses.create(body)) {
    expect([...Value.Errors(ResponseStreamEvent, event)]).toEqual([]);
    expect(event.sequence_number).toBe(numEvents++);
    if (event.type === 'response.output_text.delta') {
      text += event.delta;
      numLogprobs += event.logprobs.length;
    }
    last = event;
  }
  expect(text).toBe(whole.output_text);
  expect(numLogprobs).toBe(whole.usage?.output_tokens);
  expect(last?.type).toBe(`response.${whole.status}`);
  const { id } =
    last?.type === 'response.incomplete' || last?.type === 'response.completed' ? last.response : { id: '' };
  expect((await demo.client.responses.retrieve(id)).output_text).toBe(text);
});

test('previous_response_id continues a conversation, without its instructions', async () => {
  const first = await demo.client.responses.create({ ...greedy, instructions: 'Be short.' });
  const second = await demo.client.responses.create({ ...greedy, input: 'And Bob?', previous_response_id: first.id });
  const messages = [question, { role: 'assistant', content: first.output_text }, { role: 'user', content: 'And Bob?' }];
  const expected = await model.generate(messages, { temperature: 0, maxTokens: 12 }).result();
  expect(second.output_text).toBe(expected.text);
  expect(second.usage?.input_tokens).toBe(expected.promptTokens);
  await demo.client.responses.delete(first.id);
  await expect(demo.client.responses.retrieve(first.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  const third = { ...greedy, previous_response_id: second.id };
  expect((await demo.client.responses.create(third)).usage?.input_tokens).toBeGreaterThan(expected.promptTokens);
  const unstored = await demo.client.responses.create({ ...greedy, store: false });
  await expect(demo.client.responses.retrieve(unstored.id)).rejects.toMatchObject({ status: 404 });
});

const schema = {
  type: 'object',
  properties: { city: { type: 'string', enum: ['Paris', 'Rome'] } },
  required: ['city'],
  additionalProperties: false,
};

test('tools: a forced call and its output; formats constrain the text', async () => {
  const tools = [{ type: 'function' as const, name: 'get_weather', parameters: schema, strict: true }];
  const ask = { ...greedy, max_output_tokens: 300, tools, parallel_tool_calls: false };
  const answer = await demo.client.responses.create({ ...ask, tool_choice: 'required' });
  const [call] = answer.output;
  if (call?.type !== 'function_call') throw new Error('no call');
  expect(JSON.parse(call.arguments)).toEqual({ city: expect.stringMatching(/^(Paris|Rome)$/) as string });
  const output = { type: 'function_call_output' as const, call_id: call.call_id, output: 'warm' };
  const next = { ...ask, max_output_tokens: 2, previous_response_id: answer.id };
  expect((await demo.client.responses.create({ ...next, input: [output] })).output).toHaveLength(1);
  const unknown = { ...next, input: [{ ...output, call_id: 'none' }] };
  await expect(demo.client.responses.create(unknown)).rejects.toMatchObject({ param: 'input[0].call_id' });
  const format = { type: 'json_schema' as const, name: 'city', schema };
  const { output_text: text } = await demo.client.responses.create({
    ...greedy,
    max_output_tokens: 300,
    text: { format },
  });
  expect(JSON.parse(text)).toEqual({ city: expect.stringMatching(/^(Paris|Rome)$/) as string });
});

test('calls belong to the assistant message before them', () => {
  const call = (id: string): object => ({ type: 'function_call', call_id: id, name: 'f', arguments: '{"a":1}' });
  const toolCall = (id: string): object => ({ id, name: 'f', arguments: { a: 1 } });
  const input = [
    { role: 'user', content: question.content },
    { type: 'reasoning', id: 'rs_1' },
    { role: 'assistant', content: [{ type: 'output_text', text: 'So' }] },
    ...['c1', 'c2'].map(call),
    ...['c1', 'c2'].map((id) => ({ type: 'function_call_output', call_id: id, output: id })),
    call('c3'),
  ] as ResponseRequest['input'];
  expect(callOf({ input }, []).request.messages).toMatchObject([
    question,
    { role: 'assistant', content: 'So', toolCalls: ['c1', 'c2'].map(toolCall) },
    ...['c1', 'c2'].map((id) => ({ role: 'tool', toolCallId: id, name: 'f', content: id })),
    { role: 'assistant', content: '', toolCalls: [toolCall('c3')] },
  ]);
});

test('reasoning belongs to the message or the call after it', () => {
  const reasoning = (...texts: string[]): object => ({
    ...{ type: 'reasoning', id: 'rs', summary: [] },
    content: texts.map((text) => ({ type: 'reasoning_text', text })),
  });
  const input = [
    { role: 'user', content: 'One' },
    reasoning('I ', 'think'),
    { role: 'assistant', content: 'So' },
    reasoning('A call'),
    { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c1', output: 'warm' },
    { type: 'reasoning', id: 'rs', summary: [{ type: 'summary_text', text: 'Short' }] },
    reasoning('cut'),
    { role: 'user', content: 'Two' },
  ] as ResponseRequest['input'];
  expect(callOf({ input }, []).request.messages).toEqual([
    { role: 'user', content: 'One' },
    { role: 'assistant', content: 'So', reasoning: 'I think' },
    { role: 'assistant', content: '', reasoning: 'A call', toolCalls: [{ id: 'c1', name: 'f', arguments: {} }] },
    { role: 'tool', toolCallId: 'c1', name: 'f', content: 'warm' },
    { role: 'assistant', content: '', reasoning: 'Short\ncut' },
    { role: 'user', content: 'Two' },
  ]);
});

test('leaving a stream frees its slot and stores nothing', async () => {
  const stream = await demo.client.responses.create({
    ...greedy,
    model: 'endless',
    max_output_tokens: 2000,
    stream: true,
  });
  let id = '';
  for await (const event of stream) {
    if (event.type === 'response.created') id = event.response.id;
    if (event.type === 'response.output_text.delta') break;
  }
  await until(async () => (await slotsOf(demo.url)).every(({ state }) => state === 'idle'));
  await expect(demo.client.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
});

test.each<[string, object, string]>([
  ['no input', { model: demoId }, 'input'],
  [
    'an image that would have to be fetched',
    { ...greedy, input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'x' }] }] },
    'input[0].content[0].image_url',
  ],
  ['a tool of the server', { ...greedy, tools: [{ type: 'web_search' }] }, 'tools[0].type'],
  ['a conversation that is not stored', { ...greedy, previous_response_id: 'resp_none' }, 'id'],
  ['logprobs that nothing includes', { ...greedy, top_logprobs: 2 }, 'top_logprobs'],
  ['truncation', { ...greedy, truncation: 'auto' }, 'truncation'],
  ['a long input', { ...greedy, input: 'sea '.repeat(5000) }, 'input'],
  ['another model', { ...greedy, model: 'other' }, 'model'],
])('errors: %s', async (_name, body, param) => {
  const response = await postJson(`${demo.url}/v1/responses`, body);
  expect(await response.json()).toMatchObject({ error: { param } });
  expect([400, 404]).toContain(response.status);
});

test('stored conversations belong to their key', async () => {
  const keys = ['first-key-of-the-test', 'second-key-of-the-test'] as const;
  const server = await startServer({ models: [{ id: demoId, model }], apiKeys: keys });
  const [owner, other] = keys.map((apiKey) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 }));
  const { id } = (await owner?.responses.create({ ...greedy, max_output_tokens: 1 })) ?? { id: '' };
  expect((await owner?.responses.retrieve(id))?.id).toBe(id);
  await expect(other?.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
  await expect(other?.responses.delete(id)).rejects.toMatchObject({ status: 404 });
  await server.close();
});

test('the store keeps the most recently used within its bytes', () => {
  const store = new ResponseStore(1000);
  const add = (id: string, size: number): void => {
    store.add({ response: { id } as ResponseObject, conversation: [{ content: 'x'.repeat(size) }], owner: undefined });
  };
  for (const id of ['a', 'b', 'c']) add(id, 300);
  expect(store.get('a', undefined)).not.toBe(undefined); // now the latest
  add('d', 200);
  add('large', 2000);
  expect(['a', 'b', 'c', 'd', 'large'].filter((id) => store.get(id, undefined) !== undefined)).toEqual(['a', 'c', 'd']);
  expect(store.sizeBytes).toBeLessThanOrEqual(1000);
  for (const id of ['a', 'c', 'd']) expect(store.delete(id, undefined)).toBe(true);
  expect([store.sizeBytes, store.delete('a', undefined)]).toEqual([0, false]);
});

describe('reasoning, text and calls are items in their order', () => {
  const call = { id: 'call00001', name: 'f' };
  const parts: ChatPart[] = [
    { type: 'reasoning', text: 'I ' },
    { type: 'reasoning', text: 'think' },
    { type: 'text', text: 'So' },
    { type: 'tool-call-start', ...call },
    { type: 'tool-call-delta', id: call.id, arguments: '{"a"' },
    { type: 'tool-call-delta', id: call.id, arguments: ':1}' },
    { type: 'tool-call', ...call, arguments: '{"a":1}', isComplete: true },
  ];
  const output = [
    { type: 'reasoning', id: 'rs_r1_0', status: 'completed', content: [{ type: 'reasoning_text', text: 'I think' }] },
    { type: 'message', id: 'msg_r1_1', status: 'completed', content: [{ type: 'output_text', text: 'So' }] },
    { type: 'function_call', id: 'fc_r1_2', status: 'completed', call_id: call.id, name: 'f', arguments: '{"a":1}' },
  ];

  test('whole and as events', async () => {
    const whole = answering(parts);
    const kept: string[] = [];
    const keep = ({ id }: ResponseObject): void => void kept.push(id);
    const response = await new ResponseRun({ input: 'x' }, whole.job, keep).whole(whole.chat, model);
    expect(response).toMatchObject({ output, status: 'completed' });
    const { job, chat } = answering(parts);
    const deltas: Record<string, string> = {};
    const done: unknown[] = [];
    for await (const text of new ResponseRun({ input: 'x' }, job, keep).parts(chat, model)) {
      const event = JSON.parse(text.slice(text.indexOf('data: ') + 6)) as ResponseStreamEvent;
      expect([...Value.Errors(ResponseStreamEvent, event)]).toEqual([]);
      if ('delta' in event) deltas[event.item_id] = `${deltas[event.item_id] ?? ''}${event.delta}`;
      if (event.type === 'response.output_item.done') done.push(event.item);
    }
    expect(done).toMatchObject(output);
    expect(deltas).toEqual({ rs_r1_0: 'I think', msg_r1_1: 'So', fc_r1_2: '{"a":1}' });
    expect(kept).toEqual(['resp_r1', 'resp_r1']);
  });
});
