/** Chat templates: the tokens of Jinja. Templates that can be parsed render two conversations. */
import { openTokenizer, type ChatMessage } from '@winnow/engine';
import { memoryFolder } from '@winnow/hub';
import { mutateText } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';
import { tinyFiles, tinyTemplate } from '../tiny-model.ts';

const examples: readonly string[] = [
  tinyTemplate,
  "{{ bos_token }}{% set ns = namespace(n=0) %}{% for m in messages if m.role != 'system' %}{% set ns.n = ns.n + 1 %}" +
    "{% if loop.first and tools %}{{ tools | tojson(indent=2) }}{% endif %}{{ m['content'] | trim }}{{ loop.index0 }}{% endfor %}",
  '{% macro text(m, n=1) %}{{ m.content ~ eos_token * n }}{% endmacro %}{%- for m in messages[-2:] -%}{{ text(m) }}{%- endfor -%}',
  "{% if messages|length > 9 %}{{ raise_exception('too many') }}{% else %}{{ messages | map(attribute='role') | join(',') }}{% endif %}" +
    "{{ 'a b'.split(' ')[0] | upper }}{{ {'x': [1, 2]}['x'] | last }}{{ messages is defined }}",
];
const vocabulary: readonly string[] = [
  ...[
    '{%',
    '%}',
    '{{',
    '}}',
    '{#',
    '#}',
    '-',
    ' ',
    '|',
    '(',
    ')',
    '[',
    ']',
    '.',
    ',',
    "'",
    '"',
    '~',
    '=',
    '==',
    '%',
    '//',
  ],
  ...[
    'for m in range(1000000)',
    'endfor',
    'if',
    'else',
    'elif',
    'endif',
    'set x = x',
    'in',
    'not',
    'and',
    'is',
    'macro',
    'endmacro',
  ],
  ...[
    'messages',
    'loop',
    'namespace',
    'range',
    'm',
    'content',
    'tojson',
    'join',
    'length',
    'replace',
    'sort',
    'batch(3)',
  ],
  ...[
    'constructor',
    '__proto__',
    'toString',
    "'a' * 100000000",
    '1 / 0',
    '10 ** 999',
    '-1',
    '0',
    'None',
    'strftime_now',
  ],
  ...['break', 'continue', 'call', 'filter', 'include', 'generation', 'x[::0]', 'x.y.z'],
];
const pattern = /\{[%{#]-?|-?[%}#]\}|'[^']*'|"[^"]*"|\w+|\s+|[^]/gu;

const conversations: readonly (readonly ChatMessage[])[] = [
  [{ role: 'user', content: 'Hi' }],
  [
    { role: 'system', content: 'Be {{ brief }}.' },
    { role: 'user', content: 'a'.repeat(200) },
    { role: 'assistant', content: '', toolCalls: [{ id: '1', name: 'f', arguments: { x: [1] } }] },
    { role: 'tool', content: '{}', toolCallId: '1', name: 'f' },
  ],
];
const variables = { tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }] };

export async function createTarget(): Promise<Target> {
  const files = await tinyFiles();
  return {
    examples: examples.map(bytesOf),
    mutate: (random, input) => bytesOf(mutateText(random, textOf(input), pattern, vocabulary).slice(0, 20_000)),
    async run(input) {
      const settings = { bos_token: '<s>', eos_token: '</s>', chat_template: textOf(input) };
      const folder = memoryFolder({ ...files, 'tokenizer_config.json': JSON.stringify(settings) });
      const { chatTemplate } = await openTokenizer(folder);
      for (const messages of conversations) chatTemplate?.render(messages, { variables });
    },
  };
}
