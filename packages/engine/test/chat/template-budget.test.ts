/** Hostile chat templates end with a typed error that names the template, within seconds. */
import { expect, test } from 'vitest';
import { createChatTemplate } from '../../src/chat/template.js';
import type { ChatMessage } from '../../src/index.js';

function render(source: string, messages: readonly ChatMessage[] = [{ role: 'user', content: 'Hi' }]): string {
  return createChatTemplate('hostile', source, {}).render(messages);
}

test.each([
  ['nested loops', '{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}'],
  ['nested empty loops', '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}'],
  ['an endless range', '{{ range(99999999999) | length }}'],
  ['a range that never advances', '{{ range(9007199254740992, 9007199254740999) | length }}'],
  ['loops over one list', '{% set l = range(9999) %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}'],
  ['sorting again and again', '{% set l = range(99999) %}{% for a in l %}{% set x = l | sort %}{% endfor %}'],
  ['doubling text', "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}"],
  ['splitting', "{% set s = range(99999) | join(',') %}{% for a in range(99999999) %}{{ s.split(',') }}{% endfor %}"],
  ['doubling macros', `{% macro m0() %}x{% endmacro %}${doublingMacros(40)}{{ m40() }}`],
])('%s', (_case, source) => {
  const template = createChatTemplate('hostile', source, {});
  const error: unknown = expect.objectContaining({
    code: 'format',
    source: 'hostile',
    field: 'chat_template',
    message: expect.stringContaining('steps') as string,
  });
  const thrown = expect(() => template.render([{ role: 'user', content: 'Hi' }]));
  thrown.toThrow(error as Error);
});

function doublingMacros(count: number): string {
  const macros = Array.from({ length: count }, (_, index) => {
    return `{% macro m${index + 1}() %}{{ m${index}() }}{{ m${index}() }}{% endmacro %}`;
  });
  return macros.join('');
}

test('a long conversation stays within the budget', () => {
  const messages = Array.from({ length: 5000 }, (_, index) => ({ role: 'user', content: `message ${index}` }));
  const source =
    "{% for m in messages %}{% if loop.index0 == messages | length - 1 or messages[loop.index0 - 1].role == 'user' %}" +
    "{{ '<' ~ m['role'] ~ '>' + m.content | trim }}{% endif %}{% endfor %}{{ messages[1:] | length }}{{ range(3) | join(',') }}";
  expect(render(source, messages)).toMatch(/^<user>message 0.*<user>message 499949990,1,2$/s);
});

test('a long message stays within the budget', () => {
  const content = 'x'.repeat(4 << 20);
  const source = "{% for m in messages %}{{ '<' + m.role + '>' + m['content'] | trim + '</s>' }}{% endfor %}";
  expect(render(source, [{ role: 'user', content }]).length).toBe(content.length + 10);
});

test('dates of templates', () => {
  expect(render("{{ strftime_now('%Y') }}{{ True and none is none }}")).toMatch(/^\d{4}true$/);
});
