import { expect, test } from 'vitest';
import { fitLines, formatBytes, formatCount, formatInteger, formatJson, formatTable } from './format.js';

test('formatBytes has three digits and powers of 1000', () => {
  expect([0, 999, 1000, 5_958_336, 999_600, 2e12, 5e15].map(formatBytes)).toEqual([
    '0 B',
    '999 B',
    '1 kB',
    '5.96 MB',
    '1 MB',
    '2 TB',
    '5000 TB',
  ]);
});

test('formatCount has three digits, formatInteger all of them in groups', () => {
  expect([0, 999, 12_345, 1_100_048_384, 135e6, 1.5e12].map(formatCount)).toEqual([
    ...['0', '999', '12.3 thousand', '1.1 billion', '135 million', '1.5 trillion'],
  ]);
  expect([0, 2048, 131_072].map(formatInteger)).toEqual(['0', '2048', '131,072']);
});

test('fitLines cuts lines at the width of the terminal, not inside a character', () => {
  expect(fitLines('abc\nabcdef\n', 4)).toBe('abc\nabc…\n');
  expect(fitLines('😀😀😀', 2)).toBe('😀…');
});

test('formatTable pads all columns but the last', () => {
  expect(
    formatTable([
      ['a', 'bb', 'c'],
      ['aaa', 'b', ''],
    ]),
  ).toBe('a    bb  c\naaa  b\n');
});

test('formatJson writes 64-bit integers and typed arrays', () => {
  expect(formatJson({ a: 7n, b: 2n ** 60n, c: Int32Array.of(1, 2), d: undefined })).toBe(
    '{"a":7,"b":"1152921504606846976","c":[1,2]}\n',
  );
});
