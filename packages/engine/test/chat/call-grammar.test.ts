/** Calls are constrained in the model's own format: what its corpus has is accepted, other arguments are not. */
import { createTokenGrammar, createTokenTrie, Deadline, type Grammar, type JsonSchema } from '@winnow/grammar';
import { finish } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { answerGrammar } from '../../src/chat/chat-grammar.js';
import { reasoningFormatOf } from '../../src/chat/formats/reasoning-formats.js';
import type { ToolFormatRow } from '../../src/chat/formats/tool-format.js';
import { toolFormat, toolFormats } from '../../src/chat/formats/tool-formats.js';
import type { ToolFormat } from '../../src/index.js';

const bytes = createTokenTrie({ vocabSize: 256, tokenBytes: (id) => Uint8Array.of(id) });
const tools = [
  {
    name: 'weather',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' }, days: { type: 'integer' } },
      required: ['city', 'days'],
      additionalProperties: false,
    },
  },
  { name: 'stop' },
];

interface GrammarTool {
  readonly name: string;
  readonly parameters?: JsonSchema;
}

function grammarOf(row: ToolFormatRow, isRequired: boolean, mark = '', given: readonly GrammarTool[] = tools): Grammar {
  const format = { tools: row, reasoning: reasoningFormatOf(mark), startsInReasoning: false };
  const rules = { format, tools: given, isRequired, isParallel: true, jsonSchema: undefined, hasReasoned: false };
  return finish(answerGrammar(rules, new Deadline(Infinity, () => 0)));
}

function accepts(grammar: Grammar, text: string): boolean {
  const matcher = createTokenGrammar({ grammar, trie: bytes }).start();
  return [...new TextEncoder().encode(text)].every((byte) => matcher.accept(byte)) && matcher.canEnd;
}

/** A call of each family; DAYS stands for the number. */
const written: readonly (readonly [ToolFormat, string])[] = [
  ['hermes', '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm", "days": DAYS}}\n</tool_call>'],
  ['llama', '{"name": "weather", "parameters": {"city": "Ulm", "days": DAYS}}'],
  ['mistral', '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Ulm", "days": DAYS}}]'],
  ['mistral-args', '[TOOL_CALLS]weather[ARGS]{"city": "Ulm", "days": DAYS}[TOOL_CALLS]stop[ARGS]{}'],
  ['mistral-call-id', '[TOOL_CALLS]weather[CALL_ID]abc123def[ARGS]{"city": "Ulm", "days": DAYS}'],
  ['harmony', '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Ulm", "days": DAYS}'],
  [
    'qwen3-coder',
    '<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n<parameter=days>\nDAYS\n</parameter>\n</function>\n</tool_call>',
  ],
  [
    'glm4.5',
    '<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n<arg_key>days</arg_key>\n<arg_value>DAYS' +
      '</arg_value>\n</tool_call>',
  ],
  [
    'deepseek-v3.2',
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">Ulm</｜DSML｜parameter>\n' +
      '<｜DSML｜parameter name="days" string="false">DAYS</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
  ],
  [
    'deepseek-r1',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"city": "Ulm", "days": DAYS}\n```' +
      '<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
  ],
  [
    'kimi-k2',
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0' +
      '<|tool_call_argument_begin|>{"city": "Ulm", "days": DAYS}<|tool_call_end|><|tool_calls_section_end|>',
  ],
  ['lfm2', '<|tool_call_start|>[weather(city="Ulm", days=DAYS), stop()]<|tool_call_end|>'],
  ['gemma4', '<|tool_call>call:weather{city:<|"|>Ulm<|"|>,days:DAYS}<tool_call|>'],
  ['apertus', '<|tools_prefix|>[{"weather": {"city": "Ulm", "days": DAYS}}, {"stop": {}}]<|tools_suffix|>'],
  ['functionary-v3.2', 'weather\n{"city": "Ulm", "days": DAYS}>>>stop\n{}'],
  [
    'deepseek-v4',
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">Ulm</｜DSML｜parameter>\n' +
      '<｜DSML｜parameter name="days" string="false">DAYS</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
  ],
  [
    'deepseek-v3.1',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Ulm", "days": DAYS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
  ],
  [
    'minimax',
    '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Ulm</parameter>\n<parameter name="days">DAYS</parameter>\n' +
      '</invoke>\n<invoke name="stop">\n</invoke>\n</minimax:tool_call>',
  ],
  [
    'seed-oss',
    '<seed:tool_call>\n<function=weather>\n<parameter=city>Ulm</parameter>\n<parameter=days>DAYS</parameter>\n' +
      '</function>\n</seed:tool_call>',
  ],
  ['lfm2.5', '[weather(city="Ulm", days=DAYS), stop()]'],
  [
    'command-r7b',
    '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Ulm", "days": DAYS}}\n]<|END_ACTION|>',
  ],
  ['command-r', 'Action:\n```json\n[\n    {"tool_name": "weather", "parameters": {"city": "Ulm", "days": DAYS}}\n]```'],
  ['functionary-v3.1', '<function=weather>{"city": "Ulm", "days": DAYS}</function><function=stop>{}</function>'],
  ['nemotron-v2', '<TOOLCALL>[{"name": "weather", "arguments": {"city": "Ulm", "days": DAYS}}]</TOOLCALL>'],
  ['apriel', '<tool_calls>[{"name": "weather", "arguments": {"city": "Ulm", "days": DAYS}}]</tool_calls>'],
  ['gigachat3.1', '<|function_call|>{"name": "weather", "arguments": {"city": "Ulm", "days": DAYS}}'],
  [
    'gigachat3',
    '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "weather", "arguments": {"city": "Ulm", "days": DAYS}}',
  ],
  ['granite', '<|tool_call|>[{"name": "weather", "arguments": {"city": "Ulm", "days": DAYS}}]'],
  ['phi4', '<|tool_call|>[{"name": "weather", "arguments": {"city": "Ulm", "days": DAYS}}]<|/tool_call|>'],
  ['firefunction', 'functools[{"name": "weather", "arguments": {"city": "Ulm", "days": DAYS}}]'],
  ['generic', '{"name": "weather", "arguments": {"city": "Ulm", "days": DAYS}}'],
];

test('every format has a call above', () => {
  expect(new Set(written.map(([name]) => name))).toEqual(new Set(toolFormats.map(({ name }) => name)));
});

test.each(written)('%s', (name, text) => {
  const [required, free] = [grammarOf(toolFormat(name), true), grammarOf(toolFormat(name), false)];
  for (const grammar of [required, free]) {
    expect(accepts(grammar, text.replace('DAYS', '2'))).toBe(true);
    expect(accepts(grammar, text.replace('DAYS', '"two"'))).toBe(false);
  }
  expect(accepts(free, name === 'functionary-v3.2' ? 'all\nHello' : 'Hello')).toBe(true);
  expect(accepts(required, 'Hello')).toBe(false);
});

test('reasoning may come before a required call, and is free', () => {
  const grammar = grammarOf(toolFormat('hermes'), true, '<think>');
  const call = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>';
  expect(accepts(grammar, `<think>\nIs <tool_call> right?\n</think>\n\n${call}`)).toBe(true);
  expect(accepts(grammar, call)).toBe(true);
  expect(accepts(grammar, '<think>\nHm.\n</think>\n\nNo.')).toBe(false);
});

test.each<[string, JsonSchema, string]>([
  ['a reference', { $ref: '#/$defs/a', $defs: { a: { type: 'object' } } }, '#/'],
  ['alternatives', { anyOf: [{ required: ['city'] }, { required: ['days'] }] }, '#/anyOf'],
  ['a required argument without a schema', { properties: { city: {} }, required: ['city', 'days'] }, '#/required'],
])('formats that write arguments one by one reject %s, others follow it', (_name, parameters, field) => {
  const given = [{ name: 'weather', parameters }];
  for (const name of ['qwen3-coder', 'gemma4'] as const) {
    expect(() => grammarOf(toolFormat(name), true, '', given)).toThrow(/this model writes arguments one by one/);
    expect(() => grammarOf(toolFormat(name), true, '', given)).toThrow(field);
  }
  grammarOf(toolFormat('hermes'), true, '', given);
});

test.each<[ToolFormat, string]>([
  ['qwen3-coder', '<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>'],
  ['gemma4', '<|tool_call>call:weather{city:<|"|>Ulm<|"|>}<tool_call|>'],
  ['lfm2', '<|tool_call_start|>[weather(city="Ulm")]<|tool_call_end|>'],
])('%s: required arguments may not be left out, others may', (name, call) => {
  const { parameters } = tools[0] as { readonly parameters: JsonSchema & object };
  for (const [required, isComplete] of [
    [['city', 'days'], false],
    [['city'], true],
  ] as const) {
    const given = [{ name: 'weather', parameters: { ...parameters, required } }];
    expect(accepts(grammarOf(toolFormat(name), true, '', given), call)).toBe(isComplete);
  }
});

test('types beside object do not hinder formats that write arguments one by one', () => {
  const parameters = { type: ['object', 'null'], properties: { city: { const: 'Ulm' } }, required: ['city'] };
  const grammar = grammarOf(toolFormat('qwen3-coder'), true, '', [{ name: 'weather', parameters }]);
  const call = '<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>';
  expect(accepts(grammar, call)).toBe(true);
});
