/**
 * The checks of LangChain's standard unit tests for chat models, with their names. Their package is private to its
 * repository (docs/decisions/0014), so they are reimplemented here.
 */
import { HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { ChatWinnow } from '../src/index.js';
import { short, useDemoModel } from './demo.js';

const model = useDemoModel();
/** Options that the suite passes to every chat model. */
const standard = () => ({
  ...short,
  maxTokens: 100,
  timeout: 60,
  stopSequences: [],
  maxRetries: 2,
  model: model(),
});

test('testChatModelInit', () => {
  expect(new ChatWinnow(standard())).toBeDefined();
});

test('testChatModelInitApiKey', () => {
  expect(new ChatWinnow(Object.assign(standard(), { apiKey: 'test' }))).toBeDefined();
});

test('testChatModelInitStreaming', () => {
  expect(new ChatWinnow({ ...standard(), streaming: true }).streaming).toBe(true);
});

test('testChatModelWithBindTools, testChatModelWithStructuredOutput', () => {
  const person = z.object({ name: z.string(), age: z.number().int().positive() });
  const personTool = tool((input) => JSON.stringify(input), {
    name: 'PersonTool',
    description: 'A person',
    schema: person,
  });
  expect(new ChatWinnow(standard()).bindTools([personTool])).toBeDefined();
  expect(new ChatWinnow(standard()).withStructuredOutput(person)).toBeDefined();
});

test('testStandardParams', () => {
  expect(new ChatWinnow({ ...standard(), stop: ['you'] }).getLsParams({})).toEqual({
    ls_provider: 'winnow',
    ls_model_name: model().name,
    ls_model_type: 'chat',
    ls_temperature: 0,
    ls_max_tokens: 100,
    ls_stop: ['you'],
  });
});

test('testInvokeThrowsWithAbortedSignal', async () => {
  const call = new ChatWinnow(standard()).invoke([new HumanMessage('hello')], { signal: AbortSignal.abort() });
  await expect(call).rejects.toThrow('abort');
});

test('testStreamReturnsEarlyWithAbortedSignal', async () => {
  const chunks: unknown[] = [];
  const read = async (): Promise<void> => {
    const signal = AbortSignal.abort();
    for await (const chunk of await new ChatWinnow(standard()).stream([new HumanMessage('hello')], { signal })) {
      chunks.push(chunk);
    }
  };
  await expect(read()).rejects.toThrow('abort');
  expect(chunks).toEqual([]);
});
