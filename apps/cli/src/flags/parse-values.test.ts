import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { UsageError } from '../errors/errors.js';
import { numberRules } from './builders.js';
import { parseBytes, parseIds, parseNumber, parsePositions, unescapeText } from './parse-values.js';

describe('parseNumber', () => {
  test.each(['', ' ', 'abc', '1x', '0x10', '1_000', 'nan', 'Infinity', '1e400', '--1', '1 2'])(
    'rejects %j and names the flag',
    (text) => {
      expect(() => parseNumber('--temperature', text, numberRules.temperature)).toThrow(UsageError);
      expect(() => parseNumber('--temperature', text, numberRules.temperature)).toThrow(
        `--temperature: expected a number from 0, got '${text}'`,
      );
    },
  );

  test('integers have no fraction and no exponent', () => {
    for (const text of ['1.5', '1e3', '9007199254740993', '1.0']) {
      expect(() => parseNumber('-n', text, numberRules.count)).toThrow('an integer of at least 1');
    }
    expect(parseNumber('-n', '42', numberRules.count)).toBe(42);
    expect(parseNumber('-n', '-1', numberRules.orMinusOne)).toBe(-1);
    expect(() => parseNumber('-n', '-2', numberRules.orMinusOne)).toThrow("got '-2'");
  });

  test('reads every finite number that JavaScript prints', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
        expect(parseNumber('--x', String(value), numberRules.any)).toBe(value === 0 ? Number(String(value)) : value);
      }),
    );
  });
});

describe('parseBytes', () => {
  test.each([
    ['1', 1],
    ['500MB', 5e8],
    ['2GB', 2e9],
    ['2GiB', 2 ** 31],
    ['2G', 2 ** 31],
    ['1.5 gb', 1.5e9],
    ['64k', 65536],
  ])('%s is %d bytes', (text, bytes) => expect(parseBytes('--memory', text)).toBe(bytes));

  test.each(['', '0', '-1GB', 'GB', '2XB', '1e9', '2 G B', '99999999TB'])('rejects %j', (text) => {
    expect(() => parseBytes('--memory', text)).toThrow(/^--memory: expected a size/);
  });
});

describe('parseIds', () => {
  test.each(['1,2,3', '1 2 3', '[1, 2, 3]', '1\n2\n3\n', ' 1, 2,3 '])('%j', (text) => {
    expect(parseIds('IDS', text)).toEqual([1, 2, 3]);
  });

  test.each(['1,-2', '1.5', 'a', '1;2', '4294967296'])('rejects %j', (text) => {
    expect(() => parseIds('IDS', text)).toThrow(/^IDS: expected token ids/);
  });
});

describe('parsePositions', () => {
  test('indices, last, all', () => {
    expect(parsePositions('--positions', '0, 2,last', 5)).toEqual([0, 2, 4]);
    expect(parsePositions('--positions', 'all', 3)).toEqual([0, 1, 2]);
  });

  test.each(['5', '-1', 'first', '0,', '1.5'])('rejects %j of 5 tokens', (text) => {
    expect(() => parsePositions('--positions', text, 5)).toThrow('positions from 0 to 4');
  });
});

test('unescapeText handles the escapes of the help text and leaves others alone', () => {
  expect(unescapeText(String.raw`a\nb\tc\\n\"\'\d`)).toBe(`a\nb\tc\\n"'\\d`);
  expect(unescapeText('ends with \\')).toBe('ends with \\');
});
