/**
 * Tools and structured output by constrained decoding: the output of a model of 3 million parameters has the requested form,
 * whatever its sense. The names of the checks are those of LangChain's standard tests.
 */
import {
  AIMessage,
  HumanMessage,
  SystemMessage,
  ToolMessage,
  type AIMessageChunk,
  type BaseMessage,
} from '@langchain/core/messages';
import { ChatPromptTemplate } from '@langchain/core/prompts';
import { RunnableLambda } from '@langchain/core/runnables';
import { tool } from '@langchain/core/tools';
import { concat } from '@langchain/core/utils/stream';
import { toJsonSchema } from '@langchain/core/utils/json_schema';
import { ArgumentError, FormatError } from '@winnow/tensor';
import { describe, expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import * as z3 from 'zod/v3';
import { ChatWinnow, type ChatWinnowFields } from '../src/index.js';
import { useDemoModel } from './demo.js';

const digit = z.number().int().min(0).max(99);
const adder = z.object({ a: digit.describe('The first number.'), b: digit }).describe('Adds two numbers.');
const adderTool = tool(({ a, b }) => String(a + b), { name: 'adder', description: 'Adds two numbers.', schema: adder });
const weatherTool = tool(({ city }) => `It rains in ${city}.`, {
  name: 'get_weather',
  description: 'The weather of a city.',
  schema: z.object({ city: z.enum(['Lisbon', 'Oslo']) }),
});
const prompt = ChatPromptTemplate.fromMessages([
  ['system', 'You call the tool {name}.'],
  ['human', 'What is the sum of 18 and 19?'],
]);

const model = useDemoModel();
const create = (fields: Partial<ChatWinnowFields> = {}): ChatWinnow =>
  new ChatWinnow({ model: model(), temperature: 0, maxTokens: 300, ...fields });

function expectCall(message: BaseMessage, name: string): { id?: string | undefined; args: Record<string, unknown> } {
  const { tool_calls: calls = [] } = message as AIMessage;
  expect(calls).toHaveLength(1);
  expect(calls[0]).toMatchObject({ name, type: 'tool_call', id: expect.any(String) });
  expect(message.response_metadata['finish_reason']).toBe('tool_calls');
  expect(message.text).toBe('');
  return calls[0] as ReturnType<typeof expectCall>;
}

function expectSum(message: BaseMessage, name: string): void {
  expect(adder.safeParse(expectCall(message, name).args).success).toBe(true);
}

const one = { tool_choice: 'any', parallelToolCalls: false };

test('testToolCalling', async () => {
  const result = await create().bindTools([adderTool], one).invoke('What is the value of adder(1, 2)? Use the tool.');
  expect(result).toBeInstanceOf(AIMessage);
  expectSum(result, 'adder');
});

test('a call that is cut off by the token limit is invalid, and the reason is length', async () => {
  const ask = (fields: Partial<ChatWinnowFields>): Promise<BaseMessage> =>
    create(fields).bindTools([weatherTool], one).invoke('What is the weather?');
  const { usage_metadata } = (await ask({})) as unknown as { usage_metadata: { output_tokens: number } };
  const maxTokens = Math.floor(usage_metadata.output_tokens * 0.8);
  const result = (await ask({ maxTokens })) as AIMessage;
  expect(result.response_metadata['finish_reason']).toBe('length');
  expect(result.tool_calls).toEqual([]);
  expect(result.invalid_tool_calls).toHaveLength(1);
});

test('testBindToolsWithRunnableToolLike', async () => {
  const runnable = RunnableLambda.from(() => undefined).asTool({ name: 'math_addition', schema: adder });
  expectSum(await prompt.pipe(create().bindTools([runnable], one)).invoke({ name: 'math_addition' }), 'math_addition');
});

test('testBindToolsWithOpenAIFormattedTools', async () => {
  const definition = { name: 'math_addition', description: 'Adds.', parameters: toJsonSchema(adder) };
  const chat = create().bindTools([{ type: 'function', function: definition }], one);
  expectSum(await prompt.pipe(chat).invoke({ name: 'math_addition' }), 'math_addition');
});

test('testToolMessageHistoriesStringContent, ListContent, testStructuredFewShotExamples', async () => {
  const args = { a: 1, b: 2 };
  const call = { name: 'adder', args, id: 'abc123', type: 'tool_call' } as const;
  const result = new ToolMessage({ content: '3', tool_call_id: 'abc123', name: 'adder' });
  const histories: BaseMessage[][] = [
    [new HumanMessage('What is 1 + 2'), new AIMessage({ content: '', tool_calls: [call] }), result],
    [
      new HumanMessage('What is 1 + 2'),
      new AIMessage({
        content: [
          { type: 'text', text: 'some text' },
          { type: 'tool_use', id: 'abc123', name: 'adder', input: args },
        ],
        tool_calls: [call],
      }),
      result,
    ],
    [
      new HumanMessage('What is 1 + 2'),
      new AIMessage({ content: '', tool_calls: [call] }),
      result,
      new AIMessage('3'),
      new HumanMessage('What is 3 + 4'),
    ],
  ];
  for (const history of histories) {
    const answer = await create({ maxTokens: 8 }).bindTools([adderTool]).invoke(history);
    expect(answer).toBeInstanceOf(AIMessage);
  }
});

test('tool calls and results of a history are part of the prompt', async () => {
  const history = [
    new HumanMessage('What is 1 + 2'),
    new AIMessage({ content: '', tool_calls: [{ name: 'adder', args: { a: 1, b: 2 }, id: 'abc123' }] }),
  ];
  const tokensOf = async (messages: BaseMessage[]): Promise<number> => {
    const { usage_metadata } = await create({ maxTokens: 1 }).invoke(messages);
    return (usage_metadata as unknown as { input_tokens: number }).input_tokens;
  };
  const silent = [new HumanMessage('What is 1 + 2'), new AIMessage('')];
  expect(await tokensOf(history)).toBeGreaterThan((await tokensOf(silent)) + 10);
});

test('testStreamTokensWithToolCalls', async () => {
  let whole: AIMessageChunk | undefined;
  for await (const chunk of await prompt.pipe(create().bindTools([adderTool], one)).stream({ name: 'adder' })) {
    whole = whole === undefined ? chunk : concat(whole, chunk);
  }
  expectSum(whole as AIMessageChunk, 'adder');
  expect(whole?.usage_metadata).toMatchObject({
    input_tokens: expect.any(Number),
    output_tokens: expect.any(Number),
  });
});

test('testModelCanUseToolUseAIMessage, with streaming', async () => {
  const chat = create().bindTools([weatherTool, adderTool]);
  const messages: BaseMessage[] = [new HumanMessage('What is the weather in Oslo? Use the tool.')];
  const choice = { tool_choice: 'get_weather', parallelToolCalls: false };
  const result = await chat.invoke(messages, choice);
  const { id, args } = expectCall(result, 'get_weather');
  expect(['Lisbon', 'Oslo']).toContain(args['city']);
  messages.push(
    result,
    new ToolMessage({
      content: await weatherTool.invoke(args as { city: 'Oslo' }),
      tool_call_id: id ?? '',
      name: 'get_weather',
    }),
  );
  const last = await chat.invoke(messages, { tool_choice: 'none', maxTokens: 8 });
  expect(last.text).not.toBe('');
  expect(last.tool_calls).toEqual([]);
});

test('testParallelToolCalling: every call of an answer has its own id', async () => {
  const chat = create({ temperature: 1, seed: 3, maxTokens: 150 }).bindTools([adderTool, weatherTool], {
    tool_choice: 'required',
  });
  const { tool_calls: calls = [] } = await chat.invoke([new SystemMessage('Call twice.'), new HumanMessage('Now.')]);
  expect(calls.length).toBeGreaterThan(1);
  expect(new Set(calls.map(({ id }) => id)).size).toBe(calls.length);
  for (const { name } of calls) expect(['adder', 'get_weather']).toContain(name);
});

test('testParallelToolCalling: histories', async () => {
  const calls = [
    { name: 'get_weather', args: { city: 'Oslo' }, id: 'one', type: 'tool_call' },
    { name: 'adder', args: { a: 1, b: 2 }, id: 'two', type: 'tool_call' },
  ] as const;
  const answer = await create({ maxTokens: 8 })
    .bindTools([weatherTool, adderTool], { tool_choice: 'none' })
    .invoke([
      new HumanMessage('Both.'),
      new AIMessage({ content: '', tool_calls: [...calls] }),
      new ToolMessage({ name: 'get_weather', tool_call_id: 'one', content: 'It rains.' }),
      new ToolMessage({ name: 'adder', tool_call_id: 'two', content: '3' }),
    ]);
  expect(answer.tool_calls).toEqual([]);
  expect(answer.text).not.toBe('');
});

test('testModelCanAcceptStructuredToolParamsSchema, testStreamTools', async () => {
  const location = z.object({ location: z.string().max(12).describe('The city name.') });
  const chat = create().bindTools([{ name: 'get_current_weather', description: 'Weather.', schema: location }], one);
  const question = "What's the weather like in San Francisco today?";
  expect(location.safeParse(expectCall(await chat.invoke(question), 'get_current_weather').args).success).toBe(true);
  let whole: AIMessageChunk | undefined;
  for await (const chunk of await chat.stream(question)) whole = whole === undefined ? chunk : concat(whole, chunk);
  expectCall(whole as AIMessageChunk, 'get_current_weather');
});

test('invalid tools, unknown choices and unknown keywords are rejected', async () => {
  expect(() => create().bindTools([{ name: 'x' }])).toThrow(ArgumentError);
  const bound = create().bindTools([adderTool]);
  await expect(bound.invoke('a', { tool_choice: 'other' })).rejects.toSatisfy(ArgumentError.isInstance);
  await expect(bound.invoke('a', { tool_choice: { type: 'x' } })).rejects.toSatisfy(ArgumentError.isInstance);
  const list = { type: 'array', uniqueItems: true };
  const unique = { type: 'function', function: { name: 'n', parameters: { properties: { list } } } };
  await expect(create().bindTools([unique], one).invoke('a')).rejects.toSatisfy(FormatError.isInstance);
});

describe.each(['functionCalling', 'jsonSchema'])('testWithStructuredOutput, method %s', (method) => {
  test.each([
    ['zod', adder],
    ['zod 3', z3.object({ a: z3.number().int().min(0).max(99), b: z3.number().int().min(0).max(99) })],
    ['JSON schema', JSON.parse(JSON.stringify(toJsonSchema(adder))) as Record<string, unknown>],
  ])('%s', async (name, schema) => {
    const heard: unknown[] = [];
    const callbacks = [
      {
        handleChatModelStart: (...details: unknown[]) => void heard.push((details[4] as { options: unknown }).options),
      },
    ];
    const chain = prompt.pipe(create().withStructuredOutput(schema as typeof adder, { name: 'math_addition', method }));
    const result = await chain.invoke({ name: 'math_addition' }, { callbacks });
    expect(adder.safeParse(result).success).toBe(true);
    const jsonSchema = name === 'JSON schema' ? schema : toJsonSchema(schema as typeof adder);
    expect(heard).toEqual([
      expect.objectContaining({ ls_structured_output_format: { kwargs: { method }, schema: jsonSchema } }),
    ]);
  });

  test('testWithStructuredOutputIncludeRaw', async () => {
    const chain = create().withStructuredOutput(adder, { includeRaw: true, name: 'math_addition', method });
    const { raw, parsed } = await chain.invoke('What is 1 + 2?');
    expect(raw).toBeInstanceOf(AIMessage);
    expect(adder.safeParse(parsed).success).toBe(true);
  });
});

test('testInvokeMoreComplexTools', async () => {
  // the longest answer has fewer than 400 characters, including escapes and spaces, so it is always complete
  const schema = z.object({
    decision: z.enum(['UseAPI', 'UseFallback']),
    explanation: z.string().max(8),
    details: z.object({
      serviceName: z.string().regex(/^[a-z ]{0,10}$/),
      retries: z.array(z.boolean()).max(3),
      more: z
        .record(z.string().max(4), z.unknown().meta({ enum: [null, true, 7, 'x', { y: [] }] }))
        .meta({ minProperties: 1, maxProperties: 1 }),
    }),
  });
  const result = await create({ maxTokens: 400 }).withStructuredOutput(schema, { name: 'service' }).invoke('Decide.');
  expect(schema.safeParse(result).error).toBeUndefined();
  expect(Object.keys(result.details.more)).toHaveLength(1);
  expectTypeOf(result).toEqualTypeOf<z.infer<typeof schema>>();
});

test('a schema without bounds is followed until the limit', async () => {
  const schema = z.object({ text: z.string(), more: z.record(z.string(), z.unknown()) });
  const options = { name: 'service', includeRaw: true, method: 'jsonSchema' } as const;
  const { raw } = await create({ maxTokens: 5 }).withStructuredOutput(schema, options).invoke('Decide.');
  expect(raw.response_metadata['finish_reason']).toBe('length');
  expect(raw.text).toMatch(/^\{ ?"/);
});

test('other methods and truncated answers', async () => {
  expect(() => create().withStructuredOutput(adder, { method: 'guess' })).toThrow(ArgumentError);
  const cut = create({ maxTokens: 3 }).withStructuredOutput(adder);
  await expect(cut.invoke('Add.')).rejects.toThrow('maxTokens');
  const raw = await create({ maxTokens: 3 }).withStructuredOutput(adder, { includeRaw: true }).invoke('Add.');
  expect(raw.parsed).toBeNull();
  expect(raw.raw.response_metadata['finish_reason']).toBe('length');
});

test('grammars and schemas per call', async () => {
  const chat = create();
  expect((await chat.invoke('Yes or no?', { grammar: 'root ::= "yes" | "no"' })).text).toMatch(/^(yes|no)$/);
  const { text } = await chat.invoke('Count.', { jsonSchema: { enum: [1, 2] } });
  expect(['1', '2']).toContain(text.trim());
  const both = create().bindTools([adderTool]).invoke('a', { grammar: 'root ::= "a"' });
  await expect(both).rejects.toSatisfy(ArgumentError.isInstance);
});
