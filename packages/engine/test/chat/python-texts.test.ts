/** Chat templates print what Jinja for Python prints, where the Jinja library differs. */
import { expect, test } from 'vitest';
import { createChatTemplate } from '../../src/chat/template.js';

const tool = { name: 'f', parameters: { city: "It's", 'a "b"': [1, 2.5, true, null], empty: {} } };
const variables = { tool, wave: '🌊b\u200b\n' };

/** Texts are those of Jinja 3.1.6. */
test.each([
  ['{{ tool }}', `{'name': 'f', 'parameters': {'city': "It's", 'a "b"': [1, 2.5, True, None], 'empty': {}}}`],
  [
    "{{ tool | string ~ '|' }}{{ (1, 'a') }}",
    `{'name': 'f', 'parameters': {'city': "It's", 'a "b"': [1, 2.5, True, None], 'empty': {}}}|(1, 'a')`,
  ],
  ['{{ ["\'", \'"\', "\'" ~ \'"\'] }}{{ [wave] }}', `["'", '"', '\\'"']['🌊b\\u200b\\n']`],
  ['{{ true }}{{ 1 == 2 }}{{ none | trim }}[{{ undefined | trim }}]', 'TrueFalseNone[]'],
  ['{% for c in wave %}<{{ c }}>{% endfor %}', '<🌊><b><\u200b><\n>'],
  ['{% for c in missing %}x{% else %}none{% endfor %}', 'none'],
  ["{% set d = dict(a=1, **{'b': 2}) %}{{ d.a + d['b'] }}{{ dict(d, a='x') }}", "3{'a': 'x', 'b': 2}"],
  [
    '{% for i in range(9) %}{{ i }}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %},{% break %}{% endif %};{% endfor %}',
    '0;12;3,',
  ],
  ['{% for i in range(3) %}{{ x }}{% set x = i %}{{ x }}{% endfor %}', '012'],
  ['{% for i in range(2) if i > 5 %}x{% else %}no{% endfor %}', 'no'],
  [
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ loop.index }}{{ k }}{{ v }}{{ loop.last }}{% endfor %}",
    '1a1False2b2True',
  ],
  [
    '{{ wave[:1] }}{{ wave[-3:-1] }}{{ wave[1:99] == wave[1:] }}{{ wave[::-1][-1:] == wave[0:1] }}',
    '🌊b\u200bTrueTrue',
  ],
  ['{% filter upper %}a{% for i in range(2) %}b{% endfor %}{% endfilter %}', 'ABB'],
  ['{% set x %}{% for i in range(2) %}{{ i }}{% endfor %}{% endset %}{{ x }}', '01'],
  [
    '{% macro m(a, b=2) %}{% for i in range(3) %}{% if i == 2 %}{% break %}{% endif %}{{ a }}{{ b }}{% endfor %}{% endmacro %}' +
      "{{ m(1) }}{{ m(b='y', a='x') }}",
    '1212xyxy',
  ],
  ['{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(n) m() %}{{ n }}{% endcall %}', '<1>'],
  ["{{ [3, 1, 2] | sort | join(',') }}{{ 'a-b'.split('-') | last }}{{ ['B', 'a'] | sort | first }}", '1,2,3ba'],
  [
    "{{ [{'n': 'b'}, {'n': 'a'}] | sort(attribute='n') | map(attribute='n') | join('') }}" +
      "{{ [{'n': 1}, {}] | selectattr('n') | list | length }}",
    'ab1',
  ],
])('%s', (source, text) => {
  expect(createChatTemplate('texts', source, {}).render([], { variables })).toBe(text);
});

test('a break outside of a loop is an error', () => {
  const template = createChatTemplate('texts', '{% if true %}{% break %}{% endif %}', {});
  expect(() => template.render([])).toThrow(/outside of a loop/);
});
