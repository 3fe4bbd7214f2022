/** Tools in conversations: prompts by common chat templates, constrained calls, and parsing of calls. */
import { demoModelUrl } from '@winnow/demo-model';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createChatTemplate } from '../../src/chat/template.js';
import { createAnswerReader } from '../../src/chat/answers/answer-reader.js';
import { toolFormat } from '../../src/chat/formats/tool-formats.js';
import {
  loadModel,
  prepareChat,
  type ChatPart,
  type ChatReader,
  type ChatRequest,
  type ChatTool,
  type ChatTurn,
  type Model,
  type ToolFormat,
} from '../../src/index.js';

let model: Model;
beforeAll(async () => {
  model = await loadModel(demoModelUrl, { context: 1024, threads: 2 });
});
afterAll(() => model.dispose());

const tools: readonly ChatTool[] = [
  {
    name: 'weather',
    description: 'Weather of a city',
    parameters: {
      type: 'object',
      properties: { city: { enum: ['Ulm', 'Bern'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
      required: ['city'],
      additionalProperties: false,
    },
  },
  { name: 'stop' },
];

const qwen = `{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n<tools>' }}\
{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}\
{%- endfor %}{{- "\\n</tools>\\nAnswer with <tool_call></tool_call><|im_end|>\\n" }}{%- endif %}
{%- for message in messages %}{%- if message.role == "tool" %}{{- '<|im_start|>user\\n<tool_response>\\n' + \
message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role == "assistant" and message.tool_calls %}{{- '<|im_start|>assistant' }}\
{%- for tool_call in message.tool_calls %}{%- if tool_call.function is defined %}\
{%- set tool_call = tool_call.function %}\
{%- endif %}{{- '\\n<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' + (tool_call.arguments | tojson) \
+ '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`;
const llama = `{% if tools %}Environment: ipython\n{% for t in tools %}{{ t | tojson(indent=4) }}\n\
{% endfor %}Answer {"name": function name, "parameters": values}\n{% endif %}{% for m in messages %}\
{% if m.tool_calls is defined %}{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ \
m.tool_calls[0].function.arguments | tojson }}}{% else %}{{ m.role }}: {{ m.content }}{% endif %}\n{% endfor %}`;
const mistral = `{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}\
{% for m in messages %}{% if m.tool_calls is defined %}[TOOL_CALLS][\
{% for c in m.tool_calls %}{"name": "{{ c.function.name }}", "id": "{{ c.id }}"}{% endfor %}]\
{% elif m.role == "tool" %}[TOOL_RESULTS]{{ m.content }} {{ m.tool_call_id }}[/TOOL_RESULTS]\
{% else %}[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}`;
const mistralArgs = mistral.replace('{"name": "{{ c.function.name }}"', '{{ c.function.name }}[ARGS]{');

const templates: readonly (readonly [ToolFormat, string])[] = [
  ['hermes', qwen],
  ['llama', llama],
  ['mistral', mistral],
  ['mistral-args', mistralArgs],
];

const withTemplate = (source: string): Pick<Model, 'chatTemplate' | 'tokenizer' | 'config'> => ({
  chatTemplate: createChatTemplate('test', source, {}),
  tokenizer: model.tokenizer,
  config: model.config,
});

const question = [{ role: 'user', content: 'What is the weather?' }];

async function answer(turn: ChatTurn, seed: number, maxTokens = 150): Promise<ChatPart[]> {
  const reader = turn.createReader();
  const parts: ChatPart[] = [];
  const generation = model.generate(turn.prompt, { ...turn.options, temperature: 1, seed, maxTokens });
  for await (const { text } of generation) parts.push(...reader.push(text));
  return [...parts, ...reader.end()];
}

const callsOf = (parts: readonly ChatPart[]): Extract<ChatPart, { type: 'tool-call' }>[] =>
  parts.filter((part) => part.type === 'tool-call');

const textOf = (parts: readonly ChatPart[]): string =>
  parts.map((part) => (part.type === 'text' ? part.text : '')).join('');

describe('constrained calls', () => {
  test.each(templates)(
    '%s: the template is recognized, a forced call has the format and arguments of its tool',
    async (format, source) => {
      const turn = await prepareChat(withTemplate(source), {
        messages: question,
        tools,
        toolChoice: { name: 'weather' },
        parallelToolCalls: false,
      });
      expect(turn.toolFormat).toBe(format);
      expect(model.tokenizer.decode(turn.prompt)).toContain('Weather of a city');
      for (const seed of [1, 2]) {
        const parts = await answer(turn, seed);
        expect([...new Set(parts.map(({ type }) => type))]).toEqual([
          'tool-call-start',
          'tool-call-delta',
          'tool-call',
        ]);
        const [call] = callsOf(parts);
        expect(call?.name).toBe('weather');
        const values = JSON.parse(call?.arguments ?? '') as { city: string; days?: number };
        expect(['Ulm', 'Bern']).toContain(values.city);
        expect(Object.keys(values).every((name) => ['city', 'days'].includes(name))).toBe(true);
      }
    },
  );

  test('required: a call of any tool; auto: text passes through unchanged', async () => {
    const required = await prepareChat(model, {
      messages: question,
      tools,
      toolChoice: 'required',
      parallelToolCalls: false,
    });
    expect(required.toolFormat).toBe('hermes'); // the template of the demo model does not support tools
    const [call] = callsOf(await answer(required, 3));
    expect(['weather', 'stop']).toContain(call?.name);
    expect(call?.id).toBe('call00001');
    const auto = await prepareChat(model, { messages: question, tools });
    const options = { temperature: 1, seed: 3, maxTokens: 30 };
    const free = await model.generate(auto.prompt, options).result();
    const parts = await answer(auto, 3, 30);
    expect(textOf(parts)).toBe(free.text);
  });
});

describe('answers without calls', () => {
  test('a schema constrains them', async () => {
    const turn = await prepareChat(model, { messages: question, tools, jsonSchema: { const: 'ok' } });
    const texts: string[] = [];
    for (const seed of [1, 2, 3]) {
      const parts = await answer(turn, seed);
      if (callsOf(parts).length === 0) texts.push(textOf(parts));
    }
    expect(new Set(texts)).toEqual(new Set(['"ok"']));
    const none = await prepareChat(model, {
      messages: question,
      tools,
      toolChoice: 'none',
      jsonSchema: { const: 'ok' },
    });
    expect(none.options).toEqual({ jsonSchema: { const: 'ok' } });
    expect(textOf(await answer(none, 1))).toBe('"ok"');
  });
});

test('invalid requests are rejected', async () => {
  const refusal = (code: string): unknown => expect.objectContaining({ code });
  const request = { messages: question, tools };
  await expect(prepareChat(model, { ...request, toolChoice: { name: 'none' } })).rejects.toThrow(refusal('argument'));
  await expect(prepareChat(model, { messages: question, toolChoice: 'required' })).rejects.toThrow(refusal('argument'));
  await expect(prepareChat(model, { messages: question, tools: [{ name: 'a' }, { name: 'a' }] })).rejects.toThrow(
    refusal('argument'),
  );
  await expect(prepareChat(model, { messages: question, tools: [{ name: 'a b' }] })).rejects.toThrow(
    refusal('argument'),
  );
  const broken = { name: 'a', parameters: { type: 'object', properties: { x: { uniqueItems: true } } } };
  await expect(prepareChat(model, { messages: question, tools: [broken] })).rejects.toThrow(
    expect.objectContaining({ code: 'format', source: 'parameters of tool a', field: '#/properties/x/uniqueItems' }),
  );
  await expect(prepareChat({ ...model, chatTemplate: undefined }, request)).rejects.toThrow(refusal('argument'));
});

describe('large schemas of tools', () => {
  const item = { type: 'string', pattern: '^(a|b)*a(a|b){9}$' };
  const properties = Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`p${index}`, item]));
  const large = (name: string): ChatTool => ({ name, parameters: { type: 'object', properties } });
  const request = (name: string): ChatRequest => ({ messages: question, tools: [large(name)] });

  test('they are converted in slices, and stop when the request is aborted', async () => {
    const controller = new AbortController();
    const prepared = prepareChat(model, request('a'), { signal: controller.signal });
    setImmediate(() => controller.abort(new Error('gone')));
    await expect(prepared).rejects.toThrow('gone');
  });

  test('the same tools share a grammar', async () => {
    const [first, second] = await Promise.all([prepareChat(model, request('b')), prepareChat(model, request('b'))]);
    const third = await prepareChat(model, request('b'));
    expect(second.options.grammar).toBe(first.options.grammar);
    expect(third.options.grammar).toBe(first.options.grammar);
  });

  test('tools that take too long are refused with their place', async () => {
    let time = 0;
    const options = { compileTimeoutMs: 500, now: () => (time += 1000) };
    await expect(prepareChat(model, request('c'), options)).rejects.toMatchObject({
      ...{ code: 'capacity', source: 'parameters of tool c', resource: 'compile time', unit: 'ms' },
      field: expect.stringMatching(/^#/) as string,
    });
  });
});

describe('conversations with results', () => {
  const messages = [
    ...question,
    { role: 'assistant', content: '', toolCalls: [{ id: 'call00001', name: 'weather', arguments: { city: 'Ulm' } }] },
    { role: 'tool', content: '{"sun": true}', toolCallId: 'call00001', name: 'weather' },
  ];

  test.each([
    [
      'hermes',
      qwen,
      [
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>',
        '<tool_response>\n{"sun": true}',
      ],
    ],
    ['llama', llama, ['{"name": "weather", "parameters": {"city": "Ulm"}}', 'tool: {"sun": true}']],
    ['mistral', mistral, ['"id": "call00001"', '[TOOL_RESULTS]{"sun": true} call00001']],
  ])('%s', async (_format, source, expected) => {
    const { prompt } = await prepareChat(withTemplate(source), { messages, tools });
    const text = model.tokenizer.decode(prompt);
    for (const piece of expected) expect(text).toContain(piece);
  });

  test('a template without tool support gets the tools as text; call ids continue', async () => {
    const turn = await prepareChat(model, { messages: [{ role: 'system', content: 'Be brief.' }, ...messages], tools });
    const text = model.tokenizer.decode(turn.prompt);
    expect(text).toContain('Be brief.');
    expect(text.match(/system/g)).toHaveLength(1); // tools are added to the existing system message
    expect(text.indexOf('Be brief.')).toBeLessThan(text.indexOf('<tools>'));
    expect(text).toContain('<tools>');
    expect(text).toContain('<tool_response>\n{"sun": true}\n</tool_response>');
    const reader = turn.createReader();
    expect(reader.push('<tool_call>{"name": "stop", "arguments": {}}</tool_call>')).toEqual([
      { type: 'tool-call-start', id: 'call00002', name: 'stop' },
      { type: 'tool-call-delta', id: 'call00002', arguments: '{}' },
      { type: 'tool-call', id: 'call00002', name: 'stop', arguments: '{}', isComplete: true },
    ]);
  });
});

/** A reader of calls of `f` and `g`, without reasoning. */
function readerOf(name: ToolFormat): ChatReader {
  const format = { tools: toolFormat(name), reasoning: undefined, startsInReasoning: false };
  return createAnswerReader(format, [{ name: 'f' }, { name: 'g' }], () => 'id');
}

const call = (name: string, values: object): object => ({ name, arguments: JSON.stringify(values) });

const answers: readonly (readonly [ToolFormat, string, readonly (object | string)[]])[] = [
  ['hermes', 'Hello.', ['Hello.']],
  ['hermes', 'a < b <tool', ['a < b <tool']],
  [
    'hermes',
    'I look.\n<tool_call>\n{"name": "f", "arguments": {"a": "</x>"}}\n</tool_call>',
    ['I look.', call('f', { a: '</x>' })],
  ],
  [
    'hermes',
    '<tool_call>{"name":"f","arguments":{}}</tool_call>\n<tool_call>{"name":"g","arguments":"{\\"x\\":1}"}</tool_call>\n',
    [call('f', {}), call('g', { x: 1 })],
  ],
  [
    'hermes',
    'A\n<tool_call>{"name":"f","arguments":{}}</tool_call>\nIt is\n  so. \n<tool_call>{"name":"g"}</tool_call> Done now.\n',
    ['A', call('f', {}), 'It is\n  so.', call('g', {}), 'Done now.\n'],
  ],
  ['hermes', '<tool_call>{"name":"f"', ['<tool_call>{"name":"f"']],
  ['hermes', '<tool_call>nonsense</tool_call>', ['<tool_call>nonsense</tool_call>']],
  ['llama', '{"name": "f", "parameters": {"a": 1}}', [call('f', { a: 1 })]],
  ['llama', ' \n<|python_tag|>{"name": "f", "parameters": {}}', [call('f', {})]],
  ['llama', '{"a": 1} is JSON', ['{"a": 1} is JSON']],
  ['llama', 'Say {"name": "f", "parameters": {}}', ['Say {"name": "f", "parameters": {}}']],
  [
    'mistral',
    '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"a": [1]}, "id": "123456789"}]',
    [call('f', {}), call('g', { a: [1] })],
  ],
  ['mistral', 'Well [TOOL_CALLS] [{"name": "f", "arguments": {}}]', ['Well', call('f', {})]],
  ['mistral', 'Well [TOOL_CALLS] x', ['Well [TOOL_CALLS] x']],
  ['mistral-args', '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', [call('f', { a: 1 }), call('g', {})]],
];

describe('parsing answers', () => {
  test.each(answers)('%s: %s, in pieces of any size', (format, text, expected) => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 40, maxLength: 40 }), (sizes) => {
        const reader = readerOf(format);
        const parts: ChatPart[] = [];
        let at = 0;
        for (let i = 0; at < text.length; i++) {
          const size = sizes[i % sizes.length] as number;
          parts.push(...reader.push(text.slice(at, at + size)));
          at += size;
        }
        parts.push(...reader.end());
        const found: (object | string)[] = [];
        for (const part of parts) {
          const last = found.at(-1);
          if (part.type === 'tool-call') found.push(call(part.name, JSON.parse(part.arguments) as object));
          if (part.type !== 'text') continue;
          if (typeof last === 'string') found[found.length - 1] = last + part.text;
          else found.push(part.text);
        }
        expect(found).toEqual(expected);
      }),
      { numRuns: 30 },
    );
  });
});

test('a call whose arguments are nested too deeply to be written again is not complete', () => {
  const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
  const reader = readerOf('hermes');
  const parts = [...reader.push(`<tool_call>{"name": "f", "arguments": {"a": ${deep}}}</tool_call>`), ...reader.end()];
  expect(callsOf(parts)).toMatchObject([{ name: 'f', isComplete: false }]);
});

test.each([
  '"name": "f", "arguments": {"a": 1}, "arguments": {"a": 2}',
  '"arguments": {"a": 1}, "name": "f", "parameters": {"a": 2}',
])('a call that has its arguments twice starts and ends once, and is not complete: %s', (members) => {
  const reader = readerOf('hermes');
  const text = `<tool_call>{${members}}</tool_call>`;
  const parts = [...reader.push(text), ...reader.end()];
  expect(parts.map(({ type }) => type).filter((type) => type !== 'tool-call-delta')).toEqual([
    ...['tool-call-start', 'tool-call'],
  ]);
  expect(callsOf(parts)).toMatchObject([{ name: 'f', arguments: '{"a": 1}', isComplete: false }]);
});

test('text is emitted as early as possible', () => {
  const reader = readerOf('hermes');
  expect(reader.push('Hello')).toEqual([{ type: 'text', text: 'Hello' }]);
  expect(reader.push(' <')).toEqual([]);
  expect(reader.push('b>')).toEqual([{ type: 'text', text: ' <b>' }]);
});
