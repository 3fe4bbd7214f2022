import { CapacityError } from '@winnow/tensor';
import { expect, it } from 'vitest';
import { HostPattern } from './window-search.js';

const source =
  "(?:'[sS])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

function matches(pattern: RegExp, text: string): string[] {
  const found: string[] = [];
  const search = new HostPattern(pattern).search(text);
  for (let next = 0; ;) {
    const match = search.next(next);
    if (match === undefined) return found;
    next = typeof match === 'number' ? match : match.end;
    if (typeof match !== 'number') found.push(text.slice(match.start, match.end));
  }
}

// windows have 2^17 characters
it.each([
  ['words', 'the man, and 1234 seas!\r\n  \u4e2d\u6587 it\u2019s '.repeat(20_000)],
  ['letters', 'a'.repeat(600_000)],
  ['pairs of surrogates', `x${'\u{20000}'.repeat(300_000)} y`],
  ['spaces before a letter', `${' '.repeat(300_000)}x${'\n'.repeat(300_000)}`],
  ['spaces before newlines', `${' '.repeat(300_000)}\n${' '.repeat(131_000)}\n x`],
  ['runs of a window', `${'\u00e9'.repeat(131_072)}!`.repeat(3)],
])('windows have the matches of the whole text: %s', (_, text) => {
  const pattern = new RegExp(source, 'gu');
  expect(matches(pattern, text)).toEqual(text.match(pattern));
});

it('a search without a match returns between windows', () => {
  const search = new HostPattern(/[0-9]+/gu).search(`${'\u00e9'.repeat(400_000)}12`);
  const positions: unknown[] = [];
  for (let next = 0; ;) {
    const match = search.next(next);
    positions.push(typeof match);
    if (typeof match !== 'number') {
      expect(match).toEqual({ start: 400_000, end: 400_002 });
      break;
    }
    next = match;
  }
  expect(positions).toEqual(['number', 'number', 'number', 'object']);
});

it('a run of 2^20 letters of any script is found; a longer one must be ASCII', () => {
  const pattern = /\p{L}+/gu;
  expect(matches(pattern, '\u00e9'.repeat(2 ** 20))[0]).toHaveLength(2 ** 20);
  expect(matches(pattern, 'e'.repeat(2 ** 22))[0]).toHaveLength(2 ** 22);
  expect(() => matches(pattern, '\u00e9'.repeat(2 ** 21))).toThrow(CapacityError);
});
