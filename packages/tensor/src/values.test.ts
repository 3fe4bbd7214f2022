import { expect, test } from 'vitest';
import { bytesOfBase64, definedFields, describeValue, isRecord, jsonDepth } from './values.js';

test.each([
  [undefined, 'nothing', false],
  [null, 'null', false],
  [true, 'true', false],
  [0.5, '0.5', false],
  [7n, '7', false],
  ['a "b"', '"a \\"b\\""', false],
  ['x'.repeat(61), `"${'x'.repeat(60)}..."`, false],
  [[1, 2, 3], 'an array of 3', false],
  [Int32Array.of(1), 'an array of numbers', true],
  [{ a: 1 }, 'an object', true],
])('%o is described as %s', (value, description, hasFields) => {
  expect(describeValue(value)).toBe(description);
  expect(isRecord(value)).toBe(hasFields);
});

test('definedFields drops undefined and keeps null, 0 and false', () => {
  expect(definedFields({ a: undefined, b: null, c: 0, d: false })).toStrictEqual({ b: null, c: 0, d: false });
});

test('bytesOfBase64 gives bytes of any value, and throws for other texts', () => {
  expect([...bytesOfBase64('AP+ACg==')]).toEqual([0, 255, 128, 10]);
  expect(bytesOfBase64('')).toHaveLength(0);
  expect(() => bytesOfBase64('A*')).toThrow();
});

test.each([
  ['', 0],
  ['[1, {"a": [2]}, []]', 3],
  ['"[[[\\"[[" ', 0],
  ['{"[": "\\\\"}', 1],
  [`${'['.repeat(100_000)}1`, 100_000],
  [']]][[', 0],
])('%j is nested %i levels deep, as text and as bytes', (text, depth) => {
  expect(jsonDepth(text)).toBe(depth);
  expect(jsonDepth(new TextEncoder().encode(text))).toBe(depth);
});
