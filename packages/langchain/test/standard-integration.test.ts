/**
 * The checks of LangChain's standard integration tests for chat models, with their names, on the demo model. Their package is
 * private to its repository (docs/decisions/0014), so they are reimplemented here.
 */
import {
  AIMessage,
  AIMessageChunk,
  getBufferString,
  HumanMessage,
  SystemMessage,
  type BaseMessage,
} from '@langchain/core/messages';
import { describe, expect, test } from 'vitest';
import { ChatWinnow, type ChatWinnowFields } from '../src/index.js';
import { short, useDemoModel } from './demo.js';

const model = useDemoModel();
const create = (fields: Partial<ChatWinnowFields> = {}): ChatWinnow =>
  new ChatWinnow({ model: model(), ...short, ...fields });

function expectAnswer(result: BaseMessage): void {
  expect(result).toBeInstanceOf(AIMessage);
  expect(result.text).toEqual(expect.any(String));
  expect(result.text).not.toBe('');
}

test('testInvoke', async () => {
  expectAnswer(await create().invoke('Hello'));
});

test('testStream', async () => {
  let text = '';
  let numChunks = 0;
  for await (const chunk of await create().stream('Hello')) {
    numChunks++;
    expect(chunk).toBeInstanceOf(AIMessageChunk);
    text += chunk.text;
  }
  expect(numChunks).toBeGreaterThan(1);
  expect(text).toBe((await create().invoke('Hello')).text);
});

test('testBatch', async () => {
  const results = await create().batch(['Hello', 'Hey']);
  expect(results).toHaveLength(2);
  for (const result of results) expectAnswer(result);
});

test.each(['v1', 'v2'] as const)('testStreamEvents, version %s', async (version) => {
  const events = [];
  for await (const event of create().streamEvents('Hello', { version })) events.push(event);
  const names = events.map(({ event }) => event);
  expect(names[0]).toMatch(/^on_(chat_model|llm)_start$/);
  expect(names.at(-1)).toMatch(/^on_(chat_model|llm)_end$/);
  const middle = events.slice(1, -1);
  expect(middle.length).toBeGreaterThan(1);
  for (const { event } of middle) expect(event).toMatch(/^on_(chat_model|llm)_stream$/);
  const streamed = middle.map(({ data }) => (data.chunk as { message?: AIMessageChunk; text: string }).text).join('');
  const { output } = events.at(-1)?.data ?? {};
  const [[generation]] = output.generations ?? [[output]];
  expect(generation.text).toBe(streamed);
});

test('streamEvents in content blocks', async () => {
  const names: string[] = [];
  let text = '';
  for await (const event of create().streamEvents('Hello')) {
    names.push(event.event);
    if (event.event === 'content-block-delta' && 'text' in event.delta) text += event.delta.text;
  }
  expect([names[0], names.at(-1)]).toEqual(['message-start', 'message-finish']);
  expect(text).toBe((await create().invoke('Hello')).text);
});

test('testConversation', async () => {
  expectAnswer(
    await create().invoke([new HumanMessage('hello'), new AIMessage('hello'), new HumanMessage('how are you')]),
  );
});

test('testDoubleMessageConversation', async () => {
  expectAnswer(
    await create().invoke([
      new SystemMessage('hello'),
      new SystemMessage('hello'),
      new HumanMessage('hello'),
      new HumanMessage('hello'),
      new AIMessage('hello'),
      new AIMessage('hello'),
      new HumanMessage('how are you'),
    ]),
  );
});

test('testUsageMetadata', async () => {
  const result = await create().invoke('Hello');
  const numPrompt = model().encodePrompt([{ role: 'user', content: 'Hello' }]).length;
  expect(result.usage_metadata).toMatchObject({
    input_tokens: numPrompt,
    output_tokens: 8,
    total_tokens: numPrompt + 8,
  });
  expect(result.response_metadata).toMatchObject({ model: model().name, finish_reason: 'length' });
});

test('testUsageMetadata, cache_read_input', async () => {
  const text = 'The storm broke over the old harbour. '.repeat(12);
  await create().invoke(text);
  const { usage_metadata: usage } = await create().invoke(`${text} Why?`);
  const { input_tokens, input_token_details } = usage as unknown as {
    input_tokens: number;
    input_token_details: { cache_read: number };
  };
  expect(input_token_details.cache_read).toBeGreaterThan(0);
  expect(input_token_details.cache_read).toBeLessThanOrEqual(input_tokens);
});

test('testUsageMetadataStreaming', async () => {
  let whole: AIMessageChunk | undefined;
  for await (const chunk of await create().stream('Hello')) whole = whole === undefined ? chunk : whole.concat(chunk);
  const { usage_metadata, response_metadata } = await create().invoke('Hello');
  expect(whole?.usage_metadata).toMatchObject({
    ...(usage_metadata as unknown as object),
    input_token_details: expect.anything(),
  });
  expect(whole?.response_metadata).toMatchObject({
    model: response_metadata['model'],
    finish_reason: response_metadata['finish_reason'],
  });
});

test('testStopSequence', async () => {
  const { text } = await create().invoke('hi');
  const stop = text.slice(2, 5);
  const before = text.slice(0, text.indexOf(stop));
  expect(stop).toHaveLength(3);
  const byCall = await create().invoke('hi', { stop: [stop] });
  const byField = await create({ stop: [stop] }).invoke('hi');
  expect([byCall.text, byField.text]).toEqual([before, before]);
  expect(byCall.response_metadata['finish_reason']).toBe('stop');
});

test('testCacheComplexMessageTypes', async () => {
  const chat = create({ cache: true });
  const message = new HumanMessage({ content: [{ type: 'text', text: 'Hello there!' }] });
  const key = chat._getSerializedCacheKeyParametersForCall({});
  const first = await chat.invoke([message]);
  const cached = await chat.cache?.lookup(getBufferString([message]), key);
  expect(cached).toHaveLength(1);
  const [entry] = cached as unknown as [{ message: AIMessage }];
  expect(entry.message.text).toBe(first.text);
  const numSteps = model().metrics().steps.numSteps;
  expect(await chat.invoke([message])).toEqual(entry.message);
  expect(model().metrics().steps.numSteps).toBe(numSteps);
  expect(await chat.cache?.lookup(getBufferString([message]), key)).toEqual(cached);
});

describe('testInvokeWithAbortSignal and similar', () => {
  test('invoke and stream can be aborted while they run, and the model remains usable', async () => {
    const chat = create({ maxTokens: 400, streaming: true });
    const controller = new AbortController();
    const call = chat.invoke('Hello', {
      signal: controller.signal,
      callbacks: [{ handleLLMNewToken: () => controller.abort(new Error('enough')) }],
    });
    await expect(call).rejects.toThrow();
    expect(controller.signal.aborted).toBe(true);
    const stop = new AbortController();
    let numChunks = 0;
    const read = async (): Promise<void> => {
      for await (const chunk of await chat.stream('Hello', { signal: stop.signal })) {
        if (chunk.text !== '' && ++numChunks === 3) stop.abort(new Error('enough'));
      }
    };
    await expect(read()).rejects.toThrow();
    expect(numChunks).toBe(3);
    expectAnswer(await create().invoke('Hello'));
  });
});

test('testStandardTextContentBlocks', async () => {
  const content = [{ type: 'text', source_type: 'text', text: 'Hello from a text content block!' }];
  expectAnswer(await create().invoke([new HumanMessage({ content })]));
});

// Capabilities that a text model lacks: image, audio and file content. What models with images take is in images.test.ts.
test.each([
  ['image', 'messages: expected no images, since this model takes none'],
  ['image_url', 'messages: expected no images, since this model takes none'],
  ['audio', 'messages[0].content[0]: expected text or an image, got audio'],
  ['file', 'messages[0].content[0]: expected text or an image, got file'],
])('content of type %s is rejected, not dropped', async (type, message) => {
  const call = create().invoke([new HumanMessage({ content: [{ type, data: 'AAAA' }] })]);
  await expect(call).rejects.toThrow(message);
});
