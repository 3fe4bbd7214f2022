/**
 * Hostile chat templates end with a typed error that names the template, and pause before they have done much work.
 * A step is at most 400 ns on a slow machine, and 100,000 steps are taken between pauses at most.
 */
import { expect, test } from 'vitest';
import { createChatTemplate } from '../../src/chat/template.js';
import { StepBudget, StepBudgetError } from '../../src/chat/jinja/budget.js';
import type { ChatMessage } from '../../src/index.js';
import { runSliced } from '../../src/runtime/compilation.js';

function render(source: string, messages: readonly ChatMessage[] = [{ role: 'user', content: 'Hi' }]): string {
  return createChatTemplate('hostile', source, {}).render(messages);
}

const lists = '{% set n = namespace(l=[1]) %}{% for a in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}';
const text = "{% set n = namespace(s='x') %}{% for a in range(16) %}{% set n.s = n.s + n.s %}{% endfor %}";
const manyMessages = Array.from({ length: 5000 }, (_, index) => ({ role: 'user', content: `message ${index}` }));

test.each([
  ['nested loops', '{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}'],
  ['nested empty loops', '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}'],
  ['an endless range', '{{ range(99999999999) | length }}'],
  ['a range that never advances', '{{ range(9007199254740992, 9007199254740999) | length }}'],
  ['loops over one list', '{% set l = range(9999) %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}'],
  ['sorting again and again', '{% set l = range(99999) %}{% for a in l %}{% set x = l | sort %}{% endfor %}'],
  ['doubling text', "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}"],
  ['splitting', "{% set s = range(99999) | join(',') %}{% for a in range(99999999) %}{{ s.split(',') }}{% endfor %}"],
  ['a list of lists', `${lists}{{ n.l | tojson }}`],
  ['a printed list of lists', `${lists}{{ n.l }}`],
  ['a joined list of lists', `${lists}{{ n.l | join }}`],
  ['a list of lists beside a text', `${lists}{{ 'x' ~ n.l }}`],
  ['a list of lists compared with a text', `${lists}{{ 'x' == n.l }}`],
  ['a namespace in itself', '{% set n = namespace() %}{% set n.n = n %}{{ n | tojson }}'],
  ['a list in itself', '{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}'],
  ['a list in itself as a text', '{% set l = [1] %}{% set _ = l.append(l) %}{{ l | upper }}'],
  ['a list in itself in a format', "{% set l = [1] %}{% set _ = l.append(l) %}{{ '%s' % l }}{{ '{}'.format(l) }}"],
  ['a list in itself compared', '{% set l = [1] %}{% set _ = l.append(l) %}{{ l == l }}{{ [l] in [l] }}'],
  ['repeated lists', '{{ ([1] * 999999999) | length }}'],
  ['repeated texts', "{{ ('x' * 999999999) | length }}"],
  ['wide indents', "{{ 'a\\nb' | indent(500000000) }}"],
  ['wide indents of JSON', '{{ [[1]] | tojson(indent=100000000) }}'],
  ['searching a long text for a long text', `${text}{{ ('b' + n.s[:9999]) in n.s }}`],
  ['replacing every letter by a long text', `${text}{{ n.s | replace('x', n.s) }}`],
  ['replacing nothing by a long text', `${text}{{ n.s.replace('', n.s) }}`],
  ['joining by a long text', `${text}{{ range(9999) | join(n.s) }}`],
  [
    'sorting long texts',
    `${text}{% set l = [n.s, n.s, n.s, n.s] %}{{ (l + l + l + l + l + l + l + l) | sort | length }}`,
  ],
  ['dates', "{% for a in range(9999) %}{{ strftime_now('%B') }}{% endfor %}"],
  ['large macros', `{% for a in range(9999) %}{% macro m() %}${'{{ a }}'.repeat(999)}{% endmacro %}{% endfor %}`],
  ['loops in a macro', '{% macro m() %}{% for a in range(99999) %}{{ a }}{% endfor %}{% endmacro %}{{ m() }}'],
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

test.each([
  ['characters', '{{ a }}'.repeat(1 << 14), 'at most 40000 characters'],
  ['spaces', ' '.repeat(1 << 15), 'shorter runs of white space'],
])('a template of too many %s is rejected before it is parsed', (_case, source, message) => {
  expect(() => render(source)).toThrow(expect.objectContaining({ code: 'format', field: 'chat_template' }) as Error);
  expect(() => render(source)).toThrow(message);
});

test('rendering pauses for other work, and stops on request', async () => {
  const loops = '{% for a in range(999) %}{% for b in range(999) %}{% endfor %}{% endfor %}';
  const template = createChatTemplate('slow', loops, {});
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(new Error('stopped')));
  await expect(runSliced(template.renderSliced([]), stop.signal)).rejects.toThrow('stopped');
  clearTimeout(timer);
  const plain = createChatTemplate('plain', '{% for m in messages %}{{ m.content }}{% endfor %}', {});
  expect([...plain.renderSliced(manyMessages)].length).toBeGreaterThan(3);
});

test('a budget ends expressions that cannot pause before conversations', () => {
  const budget = new StepBudget();
  for (let slice = 0; slice < 8; slice++) {
    budget.spend(1 << 14);
    expect(budget.isSliceDone()).toBe(true);
    budget.startSlice();
  }
  expect(() => budget.spend(100_001)).toThrow(/expression/);
  const long = new StepBudget();
  for (let slice = 0; slice < 64; slice++, long.startSlice()) long.spend(1 << 14);
  expect(() => long.spend(1)).toThrow(StepBudgetError);
});

function doublingMacros(count: number): string {
  const macros = Array.from({ length: count }, (_, index) => {
    return `{% macro m${index + 1}() %}{{ m${index}() }}{{ m${index}() }}{% endmacro %}`;
  });
  return macros.join('');
}

test('a long conversation stays within the budget', () => {
  const source =
    "{% for m in messages %}{% if loop.index0 == messages | length - 1 or messages[loop.index0 - 1].role == 'user' %}" +
    "{{ '<' ~ m['role'] ~ '>' + m.content | trim }}{% endif %}{% endfor %}{{ messages[1:] | length }}{{ range(3) | join(',') }}";
  expect(render(source, manyMessages)).toMatch(/^<user>message 0.*<user>message 499949990,1,2$/s);
});

test('a long message stays within the budget', () => {
  const content = 'x'.repeat(4 << 20);
  const source = "{% for m in messages %}{{ '<' + m.role + '>' + m['content'] | trim + '</s>' }}{% endfor %}";
  expect(render(source, [{ role: 'user', content }]).length).toBe(content.length + 10);
});

test('dates of templates', () => {
  expect(render("{{ strftime_now('%Y') }}{{ True and none is none }}")).toMatch(/^\d{4}True$/);
});
