/** How models of different families write tool calls, as data. A parser and a grammar exist for each shape. */
import type { CallShape, ToolFormat, ToolFormatRow } from './tool-format.js';

const hermesCall = '{"name": "{name}", "arguments": {arguments}}';
const json = { kind: 'json' } as const;

const functionTags = {
  kind: 'tagged',
  open: '<function=',
  nameEnds: ['>'],
  close: '</function>',
  argument: {
    open: '<parameter=',
    keyEnds: ['>'],
    close: '</parameter>',
    written: '<parameter={key}>\n{value}\n</parameter>\n',
  },
} as const;

function invocationTags(prefix: string): Extract<CallShape, { kind: 'tagged' }> {
  return {
    kind: 'tagged',
    open: `<${prefix}invoke name="`,
    nameEnds: ['">'],
    close: `</${prefix}invoke>`,
    argument: {
      open: `<${prefix}parameter name="`,
      keyEnds: prefix === '' ? ['">'] : ['"'],
      close: `</${prefix}parameter>`,
      written: `<${prefix}parameter name="{key}"${prefix === '' ? '' : ' string="{isText}"'}>{value}</${prefix}parameter>\n`,
    },
  };
}

function deepSeekTags(name: 'deepseek-v3.2' | 'deepseek-v4', section: string): ToolFormatRow {
  const [open, close] = [`<｜DSML｜${section}>`, `</｜DSML｜${section}>`];
  return {
    name,
    marks: ['｜DSML｜', section],
    opens: [open],
    closes: [close],
    shape: invocationTags('｜DSML｜'),
    written: {
      before: `${open}\n`,
      call: '<｜DSML｜invoke name="{name}">\n{arguments}</｜DSML｜invoke>\n',
      between: '',
      after: close,
    },
  };
}

const named = (head: RegExp, ...tail: string[]): CallShape => ({ kind: 'named', head, tail });

/** The first row whose marks a template has is its format, so rows with rarer marks come first. */
export const toolFormats: readonly ToolFormatRow[] = [
  {
    name: 'harmony',
    marks: ['<|channel|>', '<|message|>'],
    opens: ['to=functions.'],
    closes: [],
    ignored: ['<|start|>', '<|end|>', '<|channel|>', '<|message|>', '<|constrain|>', '<|call|>'],
    shape: { kind: 'harmony' },
    written: {
      start: '<|channel|>commentary ',
      before: '',
      call: 'to=functions.{name} <|constrain|>json<|message|>{arguments}',
      between: '',
      after: '',
      isSingle: true,
    },
  },
  {
    name: 'kimi-k2',
    marks: ['<|tool_calls_section_begin|>'],
    opens: ['<|tool_call_begin|>'],
    closes: [],
    sectionOpen: '<|tool_calls_section_begin|>',
    ignored: ['<|tool_calls_section_begin|>', '<|tool_calls_section_end|>', '<|tool_call_end|>'],
    shape: named(
      /^\s*(?<id>(?:functions\.)?(?<name>[\w.-]+?):\d+)\s*<\|tool_call_argument_begin\|>\s*$/,
      '<|tool_call_end|>',
    ),
    written: {
      before: '<|tool_calls_section_begin|>',
      call: '<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>',
      between: '',
      after: '<|tool_calls_section_end|>',
    },
  },
  deepSeekTags('deepseek-v3.2', 'function_calls'),
  deepSeekTags('deepseek-v4', 'tool_calls'),
  {
    name: 'deepseek-r1',
    marks: ['<｜tool▁calls▁begin｜>', '```json'],
    opens: ['<｜tool▁call▁begin｜>'],
    closes: [],
    sectionOpen: '<｜tool▁calls▁begin｜>',
    ignored: ['<｜tool▁calls▁begin｜>', '<｜tool▁calls▁end｜>', '<｜tool▁call▁end｜>'],
    shape: named(/^(?:\w+<｜tool▁sep｜>)?(?<name>[\w.:-]+)\s*(?:```json)?\s*$/, '```', '<｜tool▁call▁end｜>'),
    written: {
      before: '<｜tool▁calls▁begin｜>',
      call: '<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>',
      between: '\n',
      after: '<｜tool▁calls▁end｜>',
    },
  },
  {
    name: 'deepseek-v3.1',
    marks: ['<｜tool▁calls▁begin｜>'],
    opens: ['<｜tool▁call▁begin｜>'],
    closes: [],
    sectionOpen: '<｜tool▁calls▁begin｜>',
    ignored: ['<｜tool▁calls▁begin｜>', '<｜tool▁calls▁end｜>', '<｜tool▁call▁end｜>'],
    shape: named(/^\s*(?<name>[\w.:-]+)<｜tool▁sep｜>\s*$/, '<｜tool▁call▁end｜>'),
    written: {
      before: '<｜tool▁calls▁begin｜>',
      call: '<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>',
      between: '',
      after: '<｜tool▁calls▁end｜>',
    },
  },
  {
    name: 'minimax',
    marks: ['<minimax:tool_call>'],
    opens: ['<minimax:tool_call>'],
    closes: ['</minimax:tool_call>'],
    shape: invocationTags(''),
    written: {
      before: '<minimax:tool_call>\n',
      call: '<invoke name="{name}">\n{arguments}</invoke>\n',
      between: '',
      after: '</minimax:tool_call>',
    },
  },
  {
    name: 'seed-oss',
    marks: ['<seed:tool_call>'],
    opens: ['<seed:tool_call>'],
    closes: ['</seed:tool_call>'],
    shape: {
      ...functionTags,
      argument: { ...functionTags.argument, written: '<parameter={key}>{value}</parameter>\n' },
    },
    written: {
      before: '',
      call: '<seed:tool_call>\n<function={name}>\n{arguments}</function>\n</seed:tool_call>',
      between: '\n',
      after: '',
    },
  },
  {
    name: 'glm4.5',
    marks: ['<tool_call>', '<arg_key>'],
    opens: ['<tool_call>'],
    closes: ['</tool_call>'],
    shape: {
      kind: 'tagged',
      open: '',
      nameEnds: ['\n', '<arg_key>', '</tool_call>'],
      keepsNameEnd: true,
      close: '</tool_call>',
      argument: {
        open: '<arg_key>',
        keyEnds: ['</arg_key>'],
        valueOpen: '<arg_value>',
        close: '</arg_value>',
        written: '<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n',
      },
    },
    written: { before: '', call: '<tool_call>{name}\n{arguments}</tool_call>', between: '\n', after: '' },
  },
  {
    name: 'qwen3-coder',
    marks: ['<function=', '<parameter=', '<tool_call>'],
    opens: ['<tool_call>'],
    closes: ['</tool_call>'],
    shape: functionTags,
    written: {
      before: '',
      call: '<tool_call>\n<function={name}>\n{arguments}</function>\n</tool_call>',
      between: '\n',
      after: '',
    },
  },
  {
    name: 'gemma4',
    marks: ['<|tool_call>'],
    opens: ['<|tool_call>'],
    closes: ['<tool_call|>'],
    shape: {
      kind: 'literal',
      open: 'call:',
      brackets: ['{', '}'],
      assignment: ':',
      quotes: ['<|"|>', '"'],
      hasEscapes: false,
      isList: false,
    },
    written: { before: '', call: '<|tool_call>call:{name}{arguments}<tool_call|>', between: '', after: '' },
  },
  {
    name: 'lfm2',
    marks: ['<|tool_list_start|>'],
    opens: ['<|tool_call_start|>'],
    closes: ['<|tool_call_end|>'],
    shape: pythonCalls(),
    written: {
      before: '<|tool_call_start|>[',
      call: '{name}({arguments})',
      between: ', ',
      after: ']<|tool_call_end|>',
    },
  },
  {
    name: 'lfm2.5',
    marks: ['List of tools: ['],
    opens: ['<|tool_call_start|>', '[{name}('],
    keepsOpen: true,
    closes: ['<|tool_call_end|>'],
    shape: pythonCalls(),
    written: { before: '[', call: '{name}({arguments})', between: ', ', after: ']' },
  },
  {
    name: 'command-r7b',
    marks: ['<|START_ACTION|>'],
    opens: ['<|START_ACTION|>'],
    closes: ['<|END_ACTION|>'],
    ignored: ['<|START_RESPONSE|>', '<|END_RESPONSE|>', '<|START_TEXT|>', '<|END_TEXT|>'],
    shape: json,
    written: {
      before: '<|START_ACTION|>[\n    ',
      call: '{"tool_call_id": "{index}", "tool_name": "{name}", "parameters": {arguments}}',
      between: ',\n    ',
      after: '\n]<|END_ACTION|>',
    },
  },
  {
    name: 'command-r',
    marks: ['Action:', 'tool_name'],
    opens: ['Action:'],
    closes: ['```'],
    ignored: ['<|CHATBOT_TOKEN|>', '<|END_OF_TURN_TOKEN|>'],
    shape: json,
    written: {
      before: 'Action:\n```json\n[\n    ',
      call: '{"tool_name": "{name}", "parameters": {arguments}}',
      between: ',\n    ',
      after: '\n]```',
    },
  },
  {
    name: 'functionary-v3.2',
    marks: ['>>>', 'recipient'],
    opens: ['>>>'],
    closes: [],
    shape: { kind: 'recipients' },
    written: { before: '', call: '{name}\n{arguments}', between: '>>>', after: '' },
  },
  {
    name: 'functionary-v3.1',
    marks: ['<function=', '</function>'],
    opens: ['<function='],
    closes: [],
    shape: named(/^(?<name>[^<>\s]+)>\s*$/, '</function>'),
    written: { before: '', call: '<function={name}>{arguments}</function>', between: '', after: '' },
  },
  {
    name: 'apertus',
    marks: ['<|tools_prefix|>'],
    opens: ['<|tools_prefix|>'],
    closes: ['<|tools_suffix|>'],
    ignored: ['<|tools_suffix|>'],
    shape: {
      kind: 'named',
      head: /^\s*\[?\s*\{\s*"(?<name>[^"]+)"\s*:\s*$/,
      tail: ['}', ']', '<|tools_suffix|>'],
      separator: ',',
    },
    written: {
      before: '<|tools_prefix|>[',
      call: '{"{name}": {arguments}}',
      between: ', ',
      after: ']<|tools_suffix|>',
    },
  },
  {
    name: 'nemotron-v2',
    marks: ['<TOOLCALL>'],
    opens: ['<TOOLCALL>'],
    closes: ['</TOOLCALL>'],
    ignored: ['<SPECIAL_12>'],
    shape: json,
    written: { before: '<TOOLCALL>[', call: hermesCall, between: ', ', after: ']</TOOLCALL>' },
  },
  {
    name: 'apriel',
    marks: ['<tool_calls>'],
    opens: ['<tool_calls>'],
    closes: ['</tool_calls>'],
    shape: json,
    written: { before: '<tool_calls>[', call: hermesCall, between: ', ', after: ']</tool_calls>' },
  },
  {
    name: 'gigachat3.1',
    marks: ['<|function_call|>'],
    opens: ['<|function_call|>'],
    closes: [],
    shape: json,
    written: { before: '', call: `<|function_call|>${hermesCall}`, between: '', after: '', isSingle: true },
  },
  {
    name: 'gigachat3',
    marks: ['<|role_sep|>', '<|message_sep|>'],
    opens: ['<|message_sep|>\n\nfunction call<|role_sep|>\n'],
    closes: [],
    shape: json,
    written: {
      before: '<|message_sep|>\n\nfunction call<|role_sep|>\n',
      call: hermesCall,
      between: '',
      after: '',
      isSingle: true,
    },
  },
  {
    name: 'granite',
    marks: ['<|tool_call|>', '<|start_of_role|>'],
    opens: ['<|tool_call|>'],
    closes: [],
    shape: json,
    written: { before: '<|tool_call|>[', call: hermesCall, between: ', ', after: ']' },
  },
  {
    name: 'phi4',
    marks: ['<|tool|>'],
    opens: ['<|tool_call|>', 'functools['],
    closes: [']'],
    ignored: ['<|/tool_call|>'],
    shape: json,
    written: { before: '<|tool_call|>[', call: hermesCall, between: ', ', after: ']<|/tool_call|>' },
  },
  {
    name: 'firefunction',
    marks: ['functools'],
    opens: ['functools['],
    closes: [']'],
    shape: json,
    written: { before: 'functools[', call: hermesCall, between: ', ', after: ']' },
  },
  mistral('mistral-call-id', ['[TOOL_CALLS]', '[CALL_ID]'], '[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]{arguments}'),
  mistral('mistral-args', ['[TOOL_CALLS]', '[ARGS]'], '[TOOL_CALLS]{name}[ARGS]{arguments}'),
  {
    name: 'mistral',
    marks: ['[TOOL_CALLS]'],
    opens: ['[TOOL_CALLS]'],
    closes: [],
    hasIdAfterArguments: true,
    shape: json,
    written: { before: '[TOOL_CALLS][', call: hermesCall, between: ', ', after: ']' },
  },
  {
    name: 'hermes',
    marks: ['<tool_call>'],
    opens: ['<tool_call>'],
    closes: ['</tool_call>'],
    shape: json,
    written: { before: '', call: `<tool_call>\n${hermesCall}\n</tool_call>`, between: '\n', after: '' },
  },
  llama(['<|python_tag|>']),
  llama(['ipython']),
  llama(['"parameters":']),
  {
    name: 'generic',
    marks: [],
    opens: ['<tool_call>', '<|tool_call|>', '[TOOL_CALLS]', '<tool_calls>', 'functools['],
    startOpens: ['{', '[{'],
    closes: ['</tool_call>', '<|/tool_call|>', '</tool_calls>'],
    isBare: true,
    shape: json,
    written: { before: '', call: hermesCall, between: '', after: '', isSingle: true },
  },
];

function mistral(name: ToolFormat, marks: readonly string[], call: string): ToolFormatRow {
  return {
    name,
    marks,
    opens: ['[TOOL_CALLS]'],
    closes: [],
    shape: named(/^\s*(?<name>[\w.:-]+)(?:\[CALL_ID\](?<id>\w+))?(?:\[ARGS\])?\s*$/),
    written: { before: '', call, between: '', after: '' },
  };
}

function llama(marks: readonly string[]): ToolFormatRow {
  return {
    name: 'llama',
    marks,
    opens: ['<|python_tag|>'],
    startOpens: ['{'],
    closes: [],
    isBare: true,
    shape: json,
    written: {
      before: '',
      call: '{"name": "{name}", "parameters": {arguments}}',
      between: '',
      after: '',
      isSingle: true,
    },
  };
}

function pythonCalls(): CallShape {
  return {
    kind: 'literal',
    open: '',
    brackets: ['(', ')'],
    assignment: '=',
    quotes: ['"', "'"],
    hasEscapes: true,
    isList: true,
  };
}

/** The format of a template; `generic` for one that has none of the marks. */
export function toolFormatOf(source: string): ToolFormatRow {
  return toolFormats.find(({ marks }) => marks.every((mark) => source.includes(mark))) as ToolFormatRow;
}

export function toolFormat(name: ToolFormat): ToolFormatRow {
  return toolFormats.find((row) => row.name === name) as ToolFormatRow;
}
