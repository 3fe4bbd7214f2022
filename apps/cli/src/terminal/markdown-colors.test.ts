import { stripVTControlCharacters, styleText } from 'node:util';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Paint } from './colors.js';
import { MarkdownColors } from './markdown-colors.js';

const paint: Paint = (format, text) => styleText(format, text, { validateStream: false });

function colored(pieces: readonly string[]): string {
  const colors = new MarkdownColors(paint);
  return pieces.map((piece) => colors.push(piece)).join('') + colors.end();
}

/** Which characters have which styles: `{bold}` before those that are bold, and `{}` before those without. */
function runs(text: string): string {
  const names: Readonly<Record<string, string>> = { 1: 'bold', 3: 'italic', 33: 'yellow', 35: 'magenta', 36: 'cyan' };
  const ends: Readonly<Record<string, readonly string[]>> = {
    22: ['bold'],
    23: ['italic'],
    39: ['yellow', 'magenta', 'cyan', 'gray', 'green', 'blue', 'red'],
  };
  const more: Readonly<Record<string, string>> = { 90: 'gray', 32: 'green', 34: 'blue', 31: 'red' };
  let active: string[] = [];
  let shown = '';
  let last = '';
  // oxlint-disable-next-line no-control-regex
  for (const [, code, character = ''] of text.matchAll(/\u001b\[(\d+)m|(.)/gsu)) {
    if (code !== undefined) {
      const name = names[code] ?? more[code];
      active = name === undefined ? active.filter((one) => !(ends[code] ?? []).includes(one)) : [...active, name];
      continue;
    }
    const styles = active.toSorted().join(',');
    if (styles !== last && character !== '\n') {
      shown += `{${styles}}`;
      last = styles;
    }
    shown += character;
  }
  return shown;
}

const chunked = (text: string, cuts: readonly number[]): string[] => {
  const places = [0, ...cuts.map((cut) => cut % (text.length + 1)).toSorted((a, b) => a - b), text.length];
  return places.slice(1).map((end, index) => text.slice(places[index], end));
};

test.each([
  ['a **b** c', 'a {bold}**b**{} c'],
  ['a *b* _c_ d', 'a {italic}*b*{} {italic}_c_{} d'],
  ['**a *b* c**', '{bold}**a {bold,italic}*b*{bold} c**'],
  ['2 * 3 * 4, a_b_c, __init__', '2 * 3 * 4, a_b_c, {bold}__init__'],
  ['_a_b_ c', '{italic}_a_b_{} c'],
  ['snake_case and **bold_text** here', 'snake_case and {bold}**bold_text**{} here'],
  ['a `b * c` d ``e ` f``', 'a {yellow}`b * c`{} d {yellow}``e ` f``'],
  ['\\*a\\* \\`b', '\\*a\\* \\`b'],
  ['# Title `x`\ntext', '{bold,cyan}# Title {yellow}`x`\n{}text'],
  ['#no heading', '#no heading'],
  ['- one\n  - two\n1. three\n-no', '{cyan}- {}one\n{cyan}  - {}two\n{cyan}1. {}three\n-no'],
  ['> quote **b**', '{cyan}> {}quote {bold}**b**'],
  ['**open\n\nclosed', '{bold}**open\n\n{}closed'],
  ['```js\nlet a = 1;\n```\n**b**', '{gray}```js\n{magenta}let{} a = {yellow}1{};\n{gray}```\n{bold}**b**'],
  ['```js\n/* a\nb */ 1\n```', '{gray}```js\n/* a\nb */{} {yellow}1\n{gray}```'],
  ['~~~\n```\n**a**\n~~~~\nb', '{gray}~~~\n{}```\n**a**\n{gray}~~~~\n{}b'],
  ['```unknown-language\n**a**', '{gray}```unknown-language\n{}**a**'],
  ['``` `a` **b**\n\nc', '{yellow}``` `a` **b**\n\n{}c'], // without an end it is no fence, and no code either
])('%j', (text, expected) => {
  expect(runs(colored([text]))).toBe(expected);
  for (let size = 1; size < 6; size += 1) {
    const pieces = text.match(new RegExp(`.{1,${size}}`, 'gs')) ?? [];
    expect(runs(colored(pieces))).toBe(expected);
  }
});

const marks = fc.constantFrom(
  '*',
  '**',
  '_',
  '`',
  '```',
  '\n',
  '\n\n',
  ' ',
  '#',
  '- ',
  '> ',
  '\\',
  'a',
  'let b',
  '1.',
  '~~~',
  'ü',
  '🙂',
);
const markdown = fc.array(marks, { maxLength: 40 }).map((parts) => parts.join(''));

test('no character is added, left out or moved, and chunks do not matter', () => {
  fc.assert(
    fc.property(markdown, fc.array(fc.nat(), { maxLength: 6 }), (text, cuts) => {
      const whole = colored([text]);
      expect(stripVTControlCharacters(whole)).toBe(text);
      const pieces = chunked(text, cuts).filter((piece) => piece.isWellFormed());
      if (pieces.join('') === text) expect(runs(colored(pieces))).toBe(runs(whole));
    }),
    { numRuns: 2000 },
  );
});

test('text is shown when nothing can change it any more, code by lines', () => {
  const colors = new MarkdownColors(paint);
  expect(colors.push('Hello wor')).toBe('Hello wor');
  expect(colors.push('ld *')).toBe('ld ');
  expect(runs(colors.push('it'))).toBe('{italic}*it');
  expect(colors.push('*\n`')).toContain('\n');
  expect(colors.push('``js\n')).toContain('```js');
  expect(colors.push('let a')).toBe('');
  expect(runs(colors.push(' = 1;\nb'))).toBe('{magenta}let{} a = {yellow}1{};\n');
  expect(colors.end()).toBe('b');
});
