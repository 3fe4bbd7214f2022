/** Tools and JSON. The demo model was trained on neither, so valid output is due to the grammar. */
import type { Model } from '@winnow/engine';
import type OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { demoId, loadDemoModel, startServer, type DemoServer } from './demo-server.js';

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

const messages = [{ role: 'user' as const, content: 'What is the weather in Paris?' }];
const base = { model: demoId, messages, temperature: 0, seed: 1, max_tokens: 900 };

/** Bounded everywhere, so that every answer ends within `max_tokens`. */
const schema = {
  type: 'object',
  properties: {
    city: { type: 'string', enum: ['Paris', 'Rome'] },
    isWarm: { type: 'boolean' },
    days: { type: 'array', items: { type: 'integer', minimum: 0, maximum: 9 }, minItems: 2, maxItems: 2 },
  },
  required: ['city', 'isWarm', 'days'],
  additionalProperties: false,
};

const expectedShape = {
  city: expect.stringMatching(/^(Paris|Rome)$/) as string,
  isWarm: expect.any(Boolean) as boolean,
  days: [expect.any(Number), expect.any(Number)],
};

const weather: OpenAI.Chat.Completions.ChatCompletionTool = {
  type: 'function',
  function: { name: 'get_weather', description: 'The weather of a city.', parameters: schema },
};

describe('response_format', () => {
  const response_format = { type: 'json_schema' as const, json_schema: { name: 'weather', strict: true, schema } };

  test('json_schema: the answer follows the schema, whole and in parts, greedily and drawn', async () => {
    for (const temperature of [0, 1.5]) {
      const body = { ...base, temperature, response_format };
      const { choices } = await demo.client.chat.completions.create(body);
      expect(choices[0]?.finish_reason).toBe('stop');
      const content = choices[0]?.message.content ?? '';
      expect(JSON.parse(content)).toEqual(expectedShape);
      let text = '';
      for await (const chunk of await demo.client.chat.completions.create({ ...body, stream: true })) {
        text += chunk.choices[0]?.delta.content ?? '';
      }
      expect(text).toBe(content);
    }
  });

  test('json_object: an object, or the beginning of one if it is cut off', async () => {
    const { choices } = await demo.client.chat.completions.create({
      ...base,
      response_format: { type: 'json_object' },
      max_tokens: 60,
    });
    const { message, finish_reason: reason } = choices[0] ?? {};
    const content = message?.content ?? '';
    expect(content.trimStart().startsWith('{')).toBe(true);
    if (reason === 'stop') expect(typeof JSON.parse(content)).toBe('object');
    else expect(reason).toBe('length');
  });

  test('text: same as without response_format', async () => {
    const short = { ...base, max_tokens: 8 };
    const plain = await demo.client.chat.completions.create(short);
    const text = await demo.client.chat.completions.create({ ...short, response_format: { type: 'text' } });
    expect(text.choices).toEqual(plain.choices);
  });

  test.each([true, false])('an unsupported schema is 400 and names the place (stream: %s)', async (stream) => {
    const bad = { type: 'object', properties: { a: { uniqueItems: true } } };
    const asked = demo.client.chat.completions.create({
      ...base,
      stream,
      response_format: { type: 'json_schema', json_schema: { name: 'bad', schema: bad } },
    });
    await expect(asked).rejects.toMatchObject({
      status: 400,
      param: 'response_format',
      code: 'invalid_json_schema',
      message: expect.stringContaining('#/properties/a/uniqueItems') as string,
    });
  });
});

test('a schema beyond the size limits is 400', async () => {
  const property = (index: number): [string, object] => [`p${index}`, { enum: [`value ${index}`, index] }];
  const properties = Object.fromEntries(Array.from({ length: 50_000 }, (_, index) => property(index)));
  const asked = demo.client.chat.completions.create({
    ...base,
    response_format: { type: 'json_schema', json_schema: { name: 'huge', schema: { type: 'object', properties } } },
  });
  await expect(asked).rejects.toMatchObject({ status: 400 });
});

test('a schema or grammar beyond the work budget is 400 and names the place', async () => {
  const ask = (more: object): Promise<unknown> =>
    demo.client.chat.completions.create({ ...base, ...more } as typeof base);
  const schema = { type: 'object', properties: { a: { type: 'string', pattern: '^(a|b)*a(a|b){30}$' } } };
  const format = { type: 'json_schema', json_schema: { name: 'large', schema } };
  await expect(ask({ response_format: format })).rejects.toMatchObject({
    ...{ status: 400, param: 'response_format', code: 'invalid_json_schema' },
    message: expect.stringContaining('#/properties/a/pattern') as string,
  });
  for (const grammar of ['root ::= "a" rest\nrest ::= ("a"{900}){900}', `root ::= "a"\nrest ::= ${'('.repeat(300)}`]) {
    await expect(ask({ grammar })).rejects.toMatchObject({
      ...{ status: 400, param: 'grammar', code: 'invalid_grammar' },
      message: expect.stringContaining('rest') as string,
    });
  }
});

test('a schema that is too large only as an automaton is 400 and names the place', async () => {
  const ask = (more: object): Promise<unknown> =>
    demo.client.chat.completions.create({ ...base, ...more } as typeof base);
  const schema = { type: 'object', properties: { a: { const: 'x'.repeat(260_000) } }, required: ['a'] };
  const format = { type: 'json_schema', json_schema: { name: 'large', schema } };
  await expect(ask({ response_format: format })).rejects.toMatchObject({
    ...{ status: 400, param: 'response_format', code: 'invalid_json_schema' },
    message: expect.stringContaining('JSON schema: #/properties/a') as string,
  });
});

test('a schema that takes too long is 400 and names the place', async () => {
  const quick = await startServer({ models: [{ id: demoId, model }], compileTimeoutMs: 1 });
  try {
    const ask = (more: object): Promise<unknown> =>
      quick.client.chat.completions.create({ ...base, ...more } as typeof base);
    const item = { type: 'string', pattern: '^(a|b)*a(a|b){11}$' };
    const properties = Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`p${index}`, item]));
    const schema = { type: 'object', properties };
    const format = { type: 'json_schema', json_schema: { name: 'slow', schema } };
    await expect(ask({ response_format: format })).rejects.toMatchObject({
      ...{ status: 400, param: 'response_format', code: 'invalid_json_schema' },
      message: expect.stringMatching(/JSON schema: #.* compile time/) as string,
    });
    const tool = { type: 'function', function: { name: 'slow', parameters: schema } };
    await expect(ask({ tools: [tool] })).rejects.toMatchObject({
      ...{ status: 400, param: 'tools', code: 'invalid_json_schema' },
      message: expect.stringMatching(/parameters of tool slow: #.* compile time/) as string,
    });
  } finally {
    await quick.close();
  }
});

describe('grammar', () => {
  const grammar = 'root ::= "yes" | "no"';

  test('the answer follows it, in both request formats', async () => {
    const more = { grammar } as object;
    const chat = await demo.client.chat.completions.create({ ...base, ...more });
    expect(chat.choices).toMatchObject([{ message: { content: expect.stringMatching(/^(yes|no)$/) as string } }]);
    const text = await demo.client.completions.create({ model: demoId, prompt: 'Is it?', temperature: 0, ...more });
    expect(text.choices).toMatchObject([
      { text: expect.stringMatching(/^(yes|no)$/) as string, finish_reason: 'stop' },
    ]);
  });

  test('an invalid or a second one is rejected', async () => {
    const ask = (more: object): Promise<unknown> =>
      demo.client.chat.completions.create({ ...base, ...more } as typeof base);
    const refusal = { status: 400, param: 'grammar' };
    await expect(ask({ grammar: 'root ::= (' })).rejects.toMatchObject({ ...refusal, code: 'invalid_grammar' });
    await expect(ask({ grammar, tools: [weather] })).rejects.toMatchObject(refusal);
    await expect(ask({ grammar, response_format: { type: 'json_object' } })).rejects.toMatchObject(refusal);
  });
});

test('tools: a required call has arguments of its schema, whole and in parts', async () => {
  const body = { ...base, tools: [weather], tool_choice: 'required' as const, parallel_tool_calls: false };
  const answer = await demo.client.chat.completions.create(body);
  const [choice] = answer.choices;
  expect(choice).toMatchObject({ finish_reason: 'tool_calls', message: { content: null } });
  const calls = choice?.message.tool_calls ?? [];
  expect(calls).toHaveLength(1);
  for (const call of calls) {
    expect(call).toMatchObject({
      type: 'function',
      id: expect.stringMatching(/./),
      function: { name: 'get_weather' },
    });
    if (call.type === 'function') expect(JSON.parse(call.function.arguments)).toEqual(expectedShape);
  }
  const parts: { name: string; text: string }[] = [];
  const reasons: unknown[] = [];
  for await (const chunk of await demo.client.chat.completions.create({ ...body, stream: true })) {
    const [part] = chunk.choices;
    for (const delta of part?.delta.tool_calls ?? []) {
      const entry = (parts[delta.index] ??= { name: '', text: '' });
      entry.name += delta.function?.name ?? '';
      entry.text += delta.function?.arguments ?? '';
    }
    if (part?.finish_reason) reasons.push(part.finish_reason);
  }
  expect(reasons).toEqual(['tool_calls']);
  expect(parts).toEqual(
    calls.map((call) => call.type === 'function' && { name: call.function.name, text: call.function.arguments }),
  );
});

test('tools: a call that is cut off by the token limit ends with length, whole and in parts', async () => {
  const tools = { tools: [weather], tool_choice: 'required' as const, parallel_tool_calls: false };
  const { usage } = await demo.client.chat.completions.create({ ...base, ...tools });
  const body = { ...base, ...tools, max_tokens: Math.floor((usage?.completion_tokens ?? 0) * 0.8) };
  const [choice] = (await demo.client.chat.completions.create(body)).choices;
  expect(choice?.finish_reason).toBe('length');
  expect(choice?.message.tool_calls).toHaveLength(1);
  const reasons: unknown[] = [];
  for await (const chunk of await demo.client.chat.completions.create({ ...body, stream: true })) {
    if (chunk.choices[0]?.finish_reason) reasons.push(chunk.choices[0].finish_reason);
  }
  expect(reasons).toEqual(['length']);
});

test('tools: work with the tool runner of the OpenAI client', async () => {
  const asked: unknown[] = [];
  const runner = demo.client.chat.completions.runTools(
    {
      ...base,
      tool_choice: { type: 'function', function: { name: 'get_weather' } },
      parallel_tool_calls: false,
      tools: [
        {
          type: 'function',
          function: {
            name: 'get_weather',
            description: 'The weather of a city.',
            parameters: schema,
            parse: JSON.parse,
            function: (given: unknown) => {
              asked.push(given);
              return 'sunny';
            },
          },
        },
      ],
    },
    { maxChatCompletions: 1 },
  );
  await runner.done().catch(() => undefined); // it may stop at its limit of one completion
  expect(asked).toEqual([expectedShape]);
});

test('tools: results of calls are accepted, and with tool_choice none the answer is text', async () => {
  const answer = await demo.client.chat.completions.create({
    ...base,
    max_tokens: 8,
    tools: [weather],
    tool_choice: 'none',
    messages: [
      ...messages,
      {
        role: 'assistant',
        content: null,
        tool_calls: [
          { id: 'call00001', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'call00001', content: 'sunny' },
    ],
  });
  expect(answer.choices[0]?.message.tool_calls).toBe(undefined);
  expect(typeof answer.choices[0]?.message.content).toBe('string');
});

test('tools: invalid requests are rejected by name', async () => {
  const ask = (more: object): Promise<unknown> =>
    demo.client.chat.completions.create({ ...base, ...more } as typeof base);
  const bad = {
    type: 'function',
    function: { name: 'f', parameters: { type: 'object', properties: { a: { uniqueItems: true } } } },
  };
  const other = { type: 'function', function: { name: 'other' } };
  const call = { id: 'c', type: 'function', function: { name: 'f', arguments: '{"a":' } };
  for (const [body, param] of [
    [{ tools: [bad] }, 'tools'],
    [{ tools: [weather, weather] }, 'tools'],
    [{ tools: [weather], tool_choice: other }, 'tool_choice.function.name'],
    [{ tools: [{ type: 'retrieval' }] }, 'tools[0].function'],
    [
      { messages: [...messages, { role: 'assistant', content: '', tool_calls: [call] }] },
      'messages[1].tool_calls[0].function.arguments',
    ],
  ] as const) {
    await expect(ask(body)).rejects.toMatchObject({ status: 400, param });
  }
});
