/** Answers as models of each family write them, and what they consist of. */
import type { ToolFormat } from '../../src/index.js';

/** A call with its arguments as JSON text; an id where the model gives one. */
export interface ExpectedCall {
  readonly name: string;
  readonly arguments: string;
  readonly id?: string;
  readonly isComplete?: false;
}

export interface CorpusAnswer {
  readonly format: ToolFormat;
  /** What the chat template has to mark reasoning; none by default. */
  readonly reasoningMark?: string;
  readonly startsInReasoning?: true;
  readonly answer: string;
  readonly reasoning?: string;
  readonly text?: string;
  readonly calls?: readonly ExpectedCall[];
}

const ulm = { name: 'weather', arguments: '{"city": "Ulm", "days": 2}' };
const stop = { name: 'stop', arguments: '{}' };
const escaped = { name: 'weather', arguments: String.raw`{"city": "\"Ulm\" {\\"}` };
const think = '<think>';

function json(call: { readonly name: string; readonly arguments: string }, key: string = 'arguments'): string {
  return `{"name": "${call.name}", "${key}": ${call.arguments}}`;
}

const hermes: readonly CorpusAnswer[] = [
  {
    format: 'hermes',
    answer: `I look.\n<tool_call>\n${json(ulm)}\n</tool_call>\n<tool_call>\n${json(stop)}\n</tool_call>`,
    text: 'I look.',
    calls: [ulm, stop],
  },
  {
    format: 'hermes',
    reasoningMark: think,
    answer: `<think>\nMaybe <tool_call>{"name": "x"}</tool_call>?\n</think>\n\nSo:\n<tool_call>\n${json(ulm)}\n</tool_call>`,
    reasoning: 'Maybe <tool_call>{"name": "x"}</tool_call>?',
    text: 'So:',
    calls: [ulm],
  },
  {
    format: 'hermes',
    answer: '<tool_call>\n{"arguments": {"city": "Ulm"}, "name": "weather"}\n</tool_call>',
    calls: [{ name: 'weather', arguments: '{"city": "Ulm"}' }],
  },
  {
    format: 'hermes',
    answer: `<tool_call>\n${json(escaped)}\n</tool_call>`,
    calls: [escaped],
  },
  {
    format: 'hermes',
    answer: '<tool_call>{"name": "weather", "arguments": {"city": "U',
    calls: [{ name: 'weather', arguments: '{"city": "U', isComplete: false }],
  },
  {
    format: 'hermes',
    answer: 'Write <tool_call> around <tool_call>it</tool_call>.',
    text: 'Write <tool_call> around <tool_call>it</tool_call>.',
  },
  {
    format: 'hermes',
    reasoningMark: think,
    startsInReasoning: true,
    answer: 'Hm.\n</think>\n\nYes  \n',
    reasoning: 'Hm.',
    text: 'Yes  \n',
  },
  { format: 'hermes', reasoningMark: think, answer: 'The tag <think> begins it.', text: 'The tag <think> begins it.' },
];

const mistral: readonly CorpusAnswer[] = [
  {
    format: 'mistral',
    answer: `Well[TOOL_CALLS][{"name": "weather", "arguments": ${ulm.arguments}, "id": "abc123def"}, ${json(stop)}]`,
    text: 'Well',
    calls: [{ ...ulm, id: 'abc123def' }, stop],
  },
  {
    format: 'mistral-args',
    answer: `Well[TOOL_CALLS]weather[ARGS]${ulm.arguments}[TOOL_CALLS]stop[ARGS]{}`,
    text: 'Well',
    calls: [ulm, stop],
  },
  {
    format: 'mistral-args',
    reasoningMark: '[THINK]',
    answer: `[THINK]Or [TOOL_CALLS]?[/THINK][TOOL_CALLS]weather${ulm.arguments}`,
    reasoning: 'Or [TOOL_CALLS]?',
    calls: [ulm],
  },
  {
    format: 'mistral-call-id',
    answer: `[TOOL_CALLS]weather[CALL_ID]123456789[ARGS]${ulm.arguments}`,
    calls: [{ ...ulm, id: '123456789' }],
  },
];

const tagged: readonly CorpusAnswer[] = [
  {
    format: 'qwen3-coder',
    reasoningMark: think,
    startsInReasoning: true,
    answer:
      'I see.\n</think>\n\nNow.\n<tool_call>\n<function=note>\n<parameter=text>\n a "quoted"\n\tline\n\n</parameter>\n' +
      '<parameter=tags>\n["a", 1]\n</parameter>\n' +
      '<parameter=done>\nTrue\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=stop>\n</function>\n</tool_call>',
    reasoning: 'I see.',
    text: 'Now.',
    calls: [
      { name: 'note', arguments: '{"text": " a \\"quoted\\"\\n\\tline\\n", "tags": ["a", 1], "done": true}' },
      stop,
    ],
  },
  { format: 'qwen3-coder', answer: `<tool_call>\n${json(ulm)}\n</tool_call>`, calls: [ulm] },
  {
    format: 'qwen3-coder',
    answer: '<tool_call>\n<function=weather>\n<parameter=city>\nUl',
    calls: [{ name: 'weather', arguments: '{"city": "Ul', isComplete: false }],
  },
  {
    format: 'seed-oss',
    reasoningMark: '<seed:think>',
    answer:
      '<seed:think>Short.</seed:think><seed:tool_call>\n<function=weather>\n<parameter=city>Ulm</parameter>\n' +
      '<parameter=days>2</parameter>\n</function>\n</seed:tool_call>',
    reasoning: 'Short.',
    calls: [ulm],
  },
  {
    format: 'glm4.5',
    reasoningMark: think,
    answer:
      '<think>A.</think>B.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n<arg_key>days' +
      '</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>stop</tool_call>',
    reasoning: 'A.',
    text: 'B.',
    calls: [ulm, stop],
  },
  {
    format: 'minimax',
    answer:
      '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Ulm</parameter>\n<parameter name="days">2' +
      '</parameter>\n</invoke>\n<invoke name="stop">\n</invoke>\n</minimax:tool_call>',
    calls: [ulm, stop],
  },
  {
    format: 'deepseek-v3.2',
    answer:
      'Now.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">Ulm</｜DSML｜parameter>\n' +
      '<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    text: 'Now.',
    calls: [ulm],
  },
];

const named: readonly CorpusAnswer[] = [
  {
    format: 'deepseek-r1',
    reasoningMark: think,
    startsInReasoning: true,
    answer:
      `Yes.</think>Go<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function` +
      `<｜tool▁sep｜>weather\n\`\`\`json\n${ulm.arguments}\n\`\`\`<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function` +
      `<｜tool▁sep｜>stop\n\`\`\`json\n{}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
    reasoning: 'Yes.',
    text: 'Go',
    calls: [ulm, stop],
  },
  {
    format: 'deepseek-v3.1',
    answer: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>${ulm.arguments}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
    calls: [ulm],
  },
  {
    format: 'kimi-k2',
    reasoningMark: '<|tool_calls_section_begin|>',
    answer:
      `<think>Both<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0` +
      `<|tool_call_argument_begin|>${ulm.arguments}<|tool_call_end|><|tool_call_begin|>functions.stop:1` +
      `<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>`,
    reasoning: 'Both',
    calls: [
      { ...ulm, id: 'functions.weather:0' },
      { ...stop, id: 'functions.stop:1' },
    ],
  },
  {
    format: 'functionary-v3.1',
    answer: `Ah <function=weather>${ulm.arguments}</function><function=stop>{}</function>`,
    text: 'Ah',
    calls: [ulm, stop],
  },
  {
    format: 'functionary-v3.2',
    answer: `all\nI look.>>>weather\n${ulm.arguments}>>>stop\n{}`,
    text: 'I look.',
    calls: [ulm, stop],
  },
  { format: 'functionary-v3.2', answer: `weather\n${ulm.arguments}`, calls: [ulm] },
  {
    format: 'apertus',
    answer: `<|tools_prefix|>[{"weather": ${ulm.arguments}}, {"stop": {}}]<|tools_suffix|>`,
    calls: [ulm, stop],
  },
];

const lists: readonly CorpusAnswer[] = [
  { format: 'llama', answer: json(ulm, 'parameters'), calls: [ulm] },
  {
    format: 'llama',
    answer: `<|python_tag|>${json(ulm, 'parameters')}; ${json(stop, 'parameters')}`,
    calls: [ulm, stop],
  },
  { format: 'llama', answer: '{"name": "Ulm", "people": 1}', text: '{"name": "Ulm", "people": 1}' },
  {
    format: 'command-r7b',
    reasoningMark: '<|START_THINKING|>',
    answer:
      `<|START_THINKING|>Look.<|END_THINKING|>` +
      `<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": ${ulm.arguments}}\n]<|END_ACTION|>`,
    reasoning: 'Look.',
    calls: [{ ...ulm, id: '0' }],
  },
  { format: 'command-r7b', answer: '<|START_RESPONSE|>Done.<|END_RESPONSE|>', text: 'Done.' },
  {
    format: 'command-r',
    answer: `Action:\n\`\`\`json\n[{"tool_name": "weather", "parameters": ${ulm.arguments}}]\n\`\`\``,
    calls: [ulm],
  },
  { format: 'nemotron-v2', answer: `<TOOLCALL>[${json(ulm)}, ${json(stop)}]</TOOLCALL>`, calls: [ulm, stop] },
  {
    format: 'apriel',
    reasoningMark: '[BEGIN FINAL RESPONSE]',
    startsInReasoning: true,
    answer: `First.\n[BEGIN FINAL RESPONSE]\nSo.\n<tool_calls>[${json(ulm)}]</tool_calls>`,
    reasoning: 'First.',
    text: 'So.',
    calls: [ulm],
  },
  { format: 'granite', answer: `<|tool_call|>[${json(ulm)}, ${json(stop)}]`, calls: [ulm, stop] },
  { format: 'phi4', answer: `<|tool_call|>[${json(ulm)}]<|/tool_call|>`, calls: [ulm] },
  { format: 'phi4', answer: `functools[${json(ulm)}, ${json(stop)}]`, calls: [ulm, stop] },
  { format: 'firefunction', answer: ` functools[${json(ulm)}]`, calls: [ulm] },
  {
    format: 'gigachat3',
    answer: `Ja<|message_sep|>\n\nfunction call<|role_sep|>\n${json(ulm)}`,
    text: 'Ja',
    calls: [ulm],
  },
  { format: 'gigachat3.1', answer: `<|function_call|>${json(ulm)}`, calls: [ulm] },
  { format: 'generic', answer: `[{"function": {"name": "weather", "arguments": ${ulm.arguments}}}]`, calls: [ulm] },
  { format: 'generic', answer: '[1, 2]', text: '[1, 2]' },
];

const literals: readonly CorpusAnswer[] = [
  {
    format: 'lfm2',
    answer: '<|tool_call_start|>[weather(city="Ulm", days=2), stop()]<|tool_call_end|>Wait.',
    text: 'Wait.',
    calls: [ulm, stop],
  },
  {
    format: 'lfm2',
    answer: `<|tool_call_start|>[note(text='it\\'s\\n"so" \\u00fc', tags=['a', {"b": None}], done=True)]<|tool_call_end|>`,
    calls: [
      { name: 'note', arguments: '{"text": "it\'s\\n\\"so\\" \\u00fc", "tags": ["a", {"b": null}], "done": true}' },
    ],
  },
  { format: 'lfm2.5', answer: 'Look [here](x): [weather(city="Ulm", days=2)]', text: 'Look [here](x):', calls: [ulm] },
  {
    format: 'gemma4',
    reasoningMark: '<|channel>',
    answer:
      '<|channel>thought\nEasy.<channel|>Now:<|tool_call>call:note{text:<|"|>a "b" {c}<|"|>,tags:[<|"|>x' +
      '<|"|>,1.5],done:false}<tool_call|><|tool_call>call:stop{}<tool_call|>',
    reasoning: 'Easy.',
    text: 'Now:',
    calls: [{ name: 'note', arguments: '{"text": "a \\"b\\" {c}", "tags": ["x", 1.5], "done": false}' }, stop],
  },
];

const channels: readonly CorpusAnswer[] = [
  {
    format: 'harmony',
    answer:
      `<|channel|>analysis<|message|>Look up.<|end|><|start|>assistant<|channel|>commentary` +
      `<|message|>One moment.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json` +
      `<|message|>${ulm.arguments}<|call|>`,
    reasoning: 'Look up.',
    text: 'One moment.',
    calls: [ulm],
  },
  { format: 'harmony', answer: ` to=functions.stop<|channel|>commentary<|message|>{}`, calls: [stop] },
  { format: 'harmony', answer: '<|channel|>final<|message|>Yes.<|return|>', text: 'Yes.' },
  { format: 'harmony', answer: 'Plain.', text: 'Plain.' },
];

export const answerCorpus: readonly CorpusAnswer[] = [
  ...hermes,
  ...mistral,
  ...tagged,
  ...named,
  ...lists,
  ...literals,
  ...channels,
];
