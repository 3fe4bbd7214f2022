import { FormatError } from '@winnow/tensor';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findJsonError } from './json-error.js';
import { JsonObject, parseJsonObject } from './index.js';

describe('JsonObject', () => {
  const config = parseJsonObject(
    '{"s":"x","n":1.5,"i":3,"b":false,"o":{"p":{"q":[]}},"ns":[1,2],"ss":["a"],"null":null,"inf":-Infinity,"long":"Infinity \\" Infinity"}',
    'config.json',
  );

  it('returns values of the right type', () => {
    expect([config.string('s'), config.number('n'), config.integer('i'), config.boolean('b')]).toEqual([
      'x',
      1.5,
      3,
      false,
    ]);
    expect([config.numbers('ns'), config.strings('ss'), config.array('ns')]).toEqual([[1, 2], ['a'], [1, 2]]);
    expect(config.object('o').object('p').path).toBe('o.p');
    expect([config.has('s'), config.has('null'), config.has('none')]).toEqual([true, false, false]);
    expect(config.value['inf']).toBe(-Infinity);
    expect(config.string('long')).toBe('Infinity " Infinity');
  });

  it('returns undefined for optional fields that are missing or null', () => {
    for (const field of ['null', 'none', 'constructor', '__proto__']) {
      expect(config.optionalString(field)).toBeUndefined();
      expect(config.optionalNumber(field)).toBeUndefined();
      expect(config.optionalInteger(field)).toBeUndefined();
      expect(config.optionalBoolean(field)).toBeUndefined();
      expect(config.optionalObject(field)).toBeUndefined();
      expect(config.optionalArray(field)).toBeUndefined();
      expect(config.optionalNumbers(field)).toBeUndefined();
      expect(config.optionalStrings(field)).toBeUndefined();
    }
  });

  it.each([
    ['missing', () => config.string('none'), 'none', /expected a string, found no such field/],
    ['null', () => config.integer('null'), 'null', /expected an integer, found null/],
    ['another kind', () => config.optionalNumber('s'), 's', /expected a number, found "x"/],
    ['a fraction', () => config.integer('n'), 'n', /found 1\.5/],
    ['not finite', () => config.number('inf'), 'inf', /found -Infinity/],
    ['an array', () => config.object('ns'), 'ns', /found an array of 2/],
    ['a mixed array', () => config.numbers('ss'), 'ss', /an array of numbers/],
    ['nested', () => config.object('o').object('p').string('q'), 'o.p.q', /expected a string/],
    ['inherited', () => config.object('constructor'), 'constructor', /no such field/],
  ])('names file and field: %s', (_, get, field, message) => {
    expect(get).toThrow(FormatError);
    expect(get).toThrow(
      expect.objectContaining({ source: 'config.json', field, message: expect.stringMatching(message) }),
    );
  });

  it.each(['[]', '3', 'null', '"x"'])('expects an object, not %s', (text) => {
    expect(() => parseJsonObject(text, 'f')).toThrow(/expected an object/);
    expect(new JsonObject('f', {}).keys()).toEqual([]);
  });
});

describe('the position of a JSON error', () => {
  it.each([
    ['', 0],
    ['{', 1],
    ['{"a":1,}', 7],
    ['{"a":01}', 6],
    ['{"a" 1}', 5],
    ['[1 2]', 3],
    ['[1,]', 3],
    ['{"a":tru}', 5],
    ['{"a":"\\x"}', 6],
    ['{"a":"\u0001"}', 6],
    ['{"a":"b', 7],
    ['{} x', 3],
    ['[}', 1],
    ['{]', 1],
    ['{"a":NaN}', 5],
    ['{"größe":x}', 9],
  ])('%j: %d', (text, index) => {
    expect(findJsonError(text)).toBe(index);
    const byteOffset = new TextEncoder().encode(text.slice(0, index)).length;
    expect(() => parseJsonObject(text, 'f')).toThrow(expect.objectContaining({ byteOffset, field: 'JSON' }));
  });

  it('is the end of valid texts', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(findJsonError(text)).toBe(text.length);
      }),
      { seed: 4 },
    );
  });

  it('is found in long strings, deep nesting and long numbers', () => {
    const long = 'a'.repeat(20_000_000);
    expect(findJsonError(`{"${long}":"${long}",}`)).toBe(2 * long.length + 7);
    expect(findJsonError('['.repeat(1_000_000))).toBe(1_000_000);
    expect(() => parseJsonObject('9'.repeat(1_000_000), 'f')).toThrow(FormatError);
  });
});

it('parseJsonObject: rejects JSON that is nested too deeply for its readers', () => {
  const nested = (levels: number): string => `{"a":${'['.repeat(levels)}${']'.repeat(levels)}}`;
  expect(parseJsonObject(nested(511), 'config.json').keys()).toEqual(['a']);
  for (const levels of [512, 300_000]) {
    expect(() => parseJsonObject(nested(levels), 'config.json')).toThrow(
      `config.json at byte 0: JSON: expected at most 512 levels of brackets, found ${levels + 1}`,
    );
  }
});
