import fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseExpression } from './expression.js';
import { LinearPattern, type Pattern } from './linear-pattern.js';

function matches(pattern: Pattern, text: string): [number, string][] {
  const found: [number, string][] = [];
  pattern.lastIndex = 0;
  for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
    found.push([match.index, match[0]]);
    if (match[0] === '') pattern.lastIndex += (text.codePointAt(match.index) ?? 0) > 0xffff ? 2 : 1;
  }
  return found;
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
      expect(matches(linear, text)).toEqual(matches(host, text));
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
