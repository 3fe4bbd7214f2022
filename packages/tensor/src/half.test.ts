import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  bfloat16ArrayToFloat,
  bfloat16ToFloat,
  floatArrayToBfloat16,
  floatArrayToHalf,
  floatToBfloat16,
  floatToHalf,
  halfArrayToFloat,
  halfTable,
  halfToFloat,
} from './half.js';

const allBits = Uint16Array.from({ length: 65536 }, (_, bits) => bits);

/** Maps sign and magnitude to two's complement, so that integers order like floats. */
function ordinal(bits: number): number {
  return (bits & 0x8000) === 0 ? bits : -(bits & 0x7fff);
}

/** The nearest finite pattern by search, the even one of ties; overflow threshold per format. */
function expectNearest(x: number, bits: number, toFloat: (bits: number) => number): void {
  const distance = Math.abs(toFloat(bits) - x);
  for (const neighbor of [ordinal(bits) - 1, ordinal(bits) + 1]) {
    const value = toFloat(neighbor < 0 ? 0x8000 | -neighbor : neighbor);
    const other = Math.abs(value - x);
    if (Number.isNaN(value)) continue;
    expect(distance <= other).toBe(true);
    if (distance === other) expect(bits & 1).toBe(0);
  }
}

test.each([
  [0x0000, 0],
  [0x0001, 2 ** -24],
  [0x03ff, 2 ** -14 - 2 ** -24],
  [0x0400, 2 ** -14],
  [0x3555, 0.333251953125],
  [0x3c00, 1],
  [0x3c01, 1 + 2 ** -10],
  [0x7bff, 65504],
  [0x7c00, Infinity],
  [0xc000, -2],
  [0xfc00, -Infinity],
])('binary16: 0x%s is %s', (bits, value) => {
  expect(halfToFloat(bits)).toBe(value);
  expect(floatToHalf(value)).toBe(bits);
});

test('binary16: negative zero and NaN', () => {
  expect(Object.is(halfToFloat(0x8000), -0)).toBe(true);
  expect(floatToHalf(-0)).toBe(0x8000);
  expect(halfToFloat(0x7e00)).toBeNaN();
  expect(halfToFloat(0xfc01)).toBeNaN();
  expect(floatToHalf(NaN) & 0x7e00).toBe(0x7e00);
});

test('binary16: ties go to even, at the edges of subnormals and of infinity', () => {
  expect(floatToHalf(1 + 2 ** -11)).toBe(0x3c00);
  expect(floatToHalf(1 + 3 * 2 ** -11)).toBe(0x3c02);
  expect(floatToHalf(2 ** -25)).toBe(0);
  expect(floatToHalf(2 ** -25 * 1.0001)).toBe(1);
  expect(floatToHalf(1.5 * 2 ** -24)).toBe(2);
  expect(floatToHalf(2 ** -14 - 2 ** -25)).toBe(0x400);
  expect(floatToHalf(65519.99)).toBe(0x7bff);
  expect(floatToHalf(65520)).toBe(0x7c00);
  expect(floatToHalf(1e-45)).toBe(0);
});

test('binary16: every pattern survives the round trip to float32', () => {
  const floats = new Float32Array(65536);
  halfArrayToFloat(allBits, floats);
  const back = new Uint16Array(65536);
  floatArrayToHalf(floats, back);
  const wrong = [...allBits].filter((bits) => (bits & 0x7fff) <= 0x7c00 && back[bits] !== bits);
  expect(wrong).toEqual([]);
  expect([...allBits].filter((bits) => (bits & 0x7fff) > 0x7c00 && !Number.isNaN(halfTable()[bits]))).toEqual([]);
});

test('binary16: rounds to the nearest, even for ties', () => {
  fc.assert(
    fc.property(fc.float({ min: -65504, max: 65504, noNaN: true }), (x) => {
      expectNearest(x, floatToHalf(x), halfToFloat);
    }),
    { numRuns: 2000 },
  );
});

test('binary16: rounds ties between all neighbors to even', () => {
  const wrong: number[] = [];
  for (let bits = 0; bits < 0x7bff; bits++) {
    const tie = (halfToFloat(bits) + halfToFloat(bits + 1)) / 2;
    if (floatToHalf(tie) !== bits + (bits & 1)) wrong.push(bits);
  }
  expect(wrong).toEqual([]);
});

test('binary16: array versions write only at the offset', () => {
  const floats = new Float32Array(4).fill(7);
  halfArrayToFloat(new Uint16Array([0x3c00, 0xc000]), floats, 1);
  expect([...floats]).toEqual([7, 1, -2, 7]);
  const bits = new Uint16Array(4).fill(7);
  floatArrayToHalf(new Float32Array([1, -2]), bits, 1);
  expect([...bits]).toEqual([7, 0x3c00, 0xc000, 7]);
});

describe('bfloat16', () => {
  test.each([
    [0x0000, 0],
    [0x0001, 2 ** -133],
    [0x3f80, 1],
    [0x3f81, 1 + 2 ** -7],
    [0xc000, -2],
    [0x7f7f, (2 - 2 ** -7) * 2 ** 127],
    [0x7f80, Infinity],
    [0xff80, -Infinity],
  ])('0x%s is %s', (bits, value) => {
    expect(bfloat16ToFloat(bits)).toBe(value);
    expect(floatToBfloat16(value)).toBe(bits);
  });

  test('ties, overflow, NaN with a payload only in the low bits', () => {
    expect(floatToBfloat16(1 + 2 ** -8)).toBe(0x3f80);
    expect(floatToBfloat16(1 + 3 * 2 ** -8)).toBe(0x3f82);
    expect(floatToBfloat16(3.4028234663852886e38)).toBe(0x7f80);
    expect(floatToBfloat16(-3.4028234663852886e38)).toBe(0xff80);
    expect(bfloat16ToFloat(floatToBfloat16(NaN))).toBeNaN();
    expect(Object.is(bfloat16ToFloat(floatToBfloat16(-0)), -0)).toBe(true);
  });

  test('every pattern survives the round trip to float32', () => {
    const floats = new Float32Array(65536);
    bfloat16ArrayToFloat(allBits, floats);
    const back = new Uint16Array(65536);
    floatArrayToBfloat16(floats, back);
    expect([...allBits].filter((bits) => (bits & 0x7fff) <= 0x7f80 && back[bits] !== bits)).toEqual([]);
    expect([...allBits].filter((bits) => (bits & 0x7fff) > 0x7f80 && !Number.isNaN(floats[bits]))).toEqual([]);
  });

  test('rounds to the nearest, even for ties', () => {
    fc.assert(
      fc.property(fc.float({ min: -(2 ** 127), max: 2 ** 127, noNaN: true }), (x) => {
        expectNearest(x, floatToBfloat16(x), bfloat16ToFloat);
      }),
      { numRuns: 2000 },
    );
  });
});
