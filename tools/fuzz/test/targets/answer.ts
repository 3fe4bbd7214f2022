/**
 * Answers of models in the formats of all families, whose first byte says which. Reading ends, the pieces of a call add up to its
 * arguments, and a place where the answer is cut in two changes nothing.
 */
import { openTokenizer, prepareChat, type ChatPart } from '@winnow/engine';
import { memoryFolder } from '@winnow/hub';
import { mutateText } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';
import { tinyFiles } from '../tiny-model.ts';

/** Marks of chat templates, by which the format is chosen. */
const marks: readonly string[] = [
  '<tool_call> <think>',
  '[TOOL_CALLS] [THINK]',
  '[TOOL_CALLS] [ARGS]',
  '<tool_call> <function= <parameter=',
  '<tool_call> <arg_key>',
  '<|channel|> <|message|>',
  '<|tool_call> <|channel>',
  '<|tool_list_start|>',
  '<｜tool▁calls▁begin｜>',
  '>>> recipient',
  '<|START_ACTION|> <|START_THINKING|>',
  'plain',
];

const examples: readonly string[] = [
  '0<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{"name": "f", "arguments": {"a": "x\\"y"}}\n</tool_call>',
  '1[THINK]So.[/THINK][TOOL_CALLS][{"name": "f", "arguments": {}, "id": "123456789"}]',
  '2Well[TOOL_CALLS]f[ARGS]{"a": "x"}[TOOL_CALLS]g{}',
  '3<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>',
  '4<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>',
  '5<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json' +
    '<|message|>{"a": "x"}<|call|>',
  '6<|channel>thought\nSo.<channel|><|tool_call>call:f{a:<|"|>x<|"|>,b:[1,{c:true}]}<tool_call|>',
  "7<|tool_call_start|>[f(a='\\u00fc', b=[1, None]), g()]<|tool_call_end|>",
  '8<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "x"}<｜tool▁call▁end｜>',
  '9all\nHi>>>f\n{"a": "x"}',
  ':<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": "x"}}]<|END_ACTION|>',
  ';{"name": "f", "parameters": {"a": "x"}}',
];
const vocabulary: readonly string[] = [
  ...['<tool_call>', '</tool_call>', '<think>', '</think>', '[TOOL_CALLS]', '[ARGS]', '<function=', '</function>'],
  ...[
    '<|channel|>',
    '<|message|>',
    '<|end|>',
    'functions.f',
    '{',
    '}',
    '[',
    ']',
    '"',
    '\\',
    ',',
    ':',
    '\n',
    ' ',
    'f',
    'g',
  ],
];
const pattern = /<[^<>]*>|\[[A-Z_/]+\]|"[^"]*"|\w+|\s+|[^]/gu;
const tools = [{ name: 'f', parameters: { type: 'object', properties: { a: { type: 'string' } } } }, { name: 'g' }];

export async function createTarget(): Promise<Target> {
  const files = await tinyFiles();
  const turns = await Promise.all(
    marks.map(async (mark) => {
      const chat_template = `{# ${mark} #}{{ tools and '' }}{{ messages[0].content }}`;
      const folder = memoryFolder({ ...files, 'tokenizer_config.json': JSON.stringify({ chat_template }) });
      const { tokenizer, chatTemplate } = await openTokenizer(folder);
      const model = { tokenizer, chatTemplate, config: { vocabSize: tokenizer.vocabSize } };
      return await prepareChat(model, { messages: [{ role: 'user', content: 'a' }], tools });
    }),
  );
  return {
    examples: examples.map(bytesOf),
    mutate: (random, input) => bytesOf(mutateText(random, textOf(input), pattern, vocabulary).slice(0, 4_000)),
    async run(input): Promise<void> {
      const [which = '', ...rest] = textOf(input);
      const answer = rest.join('');
      const turn = turns[(which.codePointAt(0) ?? 0) % turns.length] as (typeof turns)[number];
      const read = (cut: number): string => {
        const reader = turn.createReader();
        return summaryOf([...reader.push(answer.slice(0, cut)), ...reader.push(answer.slice(cut)), ...reader.end()]);
      };
      const whole = read(0);
      for (const cut of [answer.length >> 2, answer.length >> 1, answer.length - 1]) {
        if (cut > 0 && read(cut) !== whole) throw new Error(`a cut at ${cut} changes ${whole}`);
      }
    },
  };
}

/** Ids differ from reader to reader. */
function summaryOf(parts: readonly ChatPart[]): string {
  const summary: string[] = [];
  let pieces = '';
  for (const part of parts) {
    if (part.type === 'text' || part.type === 'reasoning') {
      const last = summary.at(-1);
      if (last?.startsWith(part.type) === true) summary[summary.length - 1] = last + part.text;
      else summary.push(`${part.type}: ${part.text}`);
    } else if (part.type === 'tool-call-delta') pieces += part.arguments;
    else if (part.type === 'tool-call') {
      if (pieces !== part.arguments) throw new Error(`expected ${part.arguments}, got pieces ${pieces}`);
      pieces = '';
      summary.push(`call: ${part.name} ${part.arguments} ${part.isComplete}`);
    }
  }
  return JSON.stringify(summary);
}
