import { finish, SliceCounter } from '@winnow/tensor';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseExpression } from './expression.js';
import { LinearPattern } from './linear-pattern.js';
import type { Pattern } from './window-search.js';

function matches(pattern: Pattern, text: string): [number, string][] {
  const found: [number, string][] = [];
  const search = pattern.search(text);
  finish(search.prepare(new SliceCounter(1000)));
  for (let next = 0; ;) {
    const match = search.next(next);
    if (match === undefined) return found;
    if (typeof match === 'number') {
      next = match;
      continue;
    }
    const { start, end } = match;
    found.push([start, text.slice(start, end)]);
    next = end > start ? end : start + ((text.codePointAt(start) ?? 0) > 0xffff ? 2 : 1);
  }
}

function hostMatches(pattern: RegExp, text: string): [number, string][] {
  return Array.from(text.matchAll(pattern), (match) => [match.index, match[0]]);
}

const expressions = [
  "(?:'[sS]|'[tT])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{M}]*[\\p{Ll}\\p{M}]+|\\p{Lu}+|.',
  '(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}',
  '\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))|\\s',
  '(?<![\\s\\S])a|b(?![\\s\\S])|(?<=a)b+?(?=a|b)',
  '(a+)+(?![\\s\\S])',
  'a{2,3}?b?|(?:ab|a)(?:c|bcd)?',
  'a*|\\u{1f30a}|\\uD83C\\uDF0A',
  '(?:a|ab)(?:c|bcd)(?:d*)|(?<!a)b',
];

it.each(expressions)('%s matches like the engine of the host', (source) => {
  const unit = fc.constantFrom(..."aabbcdAB01239 \n\r\t.!'sS\u0301\u00e9\u4e2d\u{1f30a}".split(/(?:)/u));
  const host = new RegExp(source, 'gu');
  const linear = new LinearPattern(parseExpression(source));
  fc.assert(
    fc.property(fc.string({ unit, maxLength: 24 }), (text) => {
      expect(matches(linear, text)).toEqual(hostMatches(host, text));
    }),
    { numRuns: 300 },
  );
});

it.each(['(a+)+(?![\\s\\S])', '(a|a)*b', 'a*a*a*a*a*a*b', `${'a?'.repeat(30)}a{30}b`])(
  '%s takes linear time on text that it does not match',
  (source) => {
    expect(matches(new LinearPattern(parseExpression(source)), `${'a'.repeat(20_000)}!`)).toEqual([]);
  },
);

it.each(['(a)\\1', '(?:a*)+', '(?<=ab)c', 'a{3000}', '('.repeat(100) + 'a' + ')'.repeat(100)])(
  'rejects %s',
  (source) => {
    expect(() => new LinearPattern(parseExpression(source))).toThrow(SyntaxError);
  },
);
