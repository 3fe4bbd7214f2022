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
  ["{{ none }}|{{ 'x' ~ none ~ missing }}|{{ tools }}|{{ documents is none }}", 'None|xNone|None|True'],
  [
    "{% set d = {0: 'a', 512: 'b'} %}{% for k, v in d | dictsort %}{{ k + 1 }}{{ v }}{% endfor %}{{ d[512] }}",
    '1a513bb',
  ],
  ["{{ [1, [2]] == [1, [2]] }}{{ [2] in [[1], [2]] }}{{ 1 == true }}{{ {'a': 1} == {'a': 2} }}", 'TrueTrueTrueFalse'],
  [
    "{{ 'ab' * 2 }}{{ [1] * 2 }}{{ -7 % 3 }}{{ '%s=%d%%' % ('a', 3) }}{{ '{}-{x}'.format(1, x='y') }}",
    'abab[1, 1]2a=3%1-y',
  ],
  [
    "{{ ['b', 'a'] | map('upper') | join(',') }}{{ [3, 1] | min }}{{ [3, 1] | max }}{{ none | selectattr('a') | list }}",
    'B,A13[]',
  ],
  ["{{ [1] | trim }}{{ 5 | upper }}{{ missing | upper }}{{ missing | length }}{{ 'xxaxx' | trim('x') }}", '[1]50a'],
  [
    "{% set l = [] %}{% set _ = l.append(1) %}{{ l }}{{ {'items': 1}['items'] }}{{ {'items': 1}.items() | list }}",
    "[1]1[('items', 1)]",
  ],
  [
    "{{ 'a.b'.removeprefix('a.') }}{{ 'abc'.find('c') }}{{ ','.join(['1', '2']) }}{{ 'b' < 'c' }}{{ ''[0] is defined }}",
    'b21,2TrueFalse',
  ],
  ["{{ '<'|safe + '<' }}{{ missing is iterable }}{{ 'a' in missing }}", '<&lt;TrueFalse'],
])('%s', (source, text) => {
  expect(createChatTemplate('texts', source, {}).render([], { variables })).toBe(text);
});

test('a break outside of a loop is an error', () => {
  const template = createChatTemplate('texts', '{% if true %}{% break %}{% endif %}', {});
  expect(() => template.render([])).toThrow(/outside of a loop/);
});

test.each([
  ["{{ 'a' + 1 }}"],
  ["{{ 'a' + ['b'] }}"],
  ['{{ missing.member }}'],
  ['{{ missing.method() }}'],
  ["{{ 'a' in none }}"],
  ['{{ 1 < [] }}'],
])('%s is an error, as in Python', (source) => {
  expect(() => createChatTemplate('texts', source, {}).render([])).toThrow(
    expect.objectContaining({ code: 'argument' }) as Error,
  );
});
