import { expect, test } from 'vitest';
import { dtypeInfo, dtypeOfGgmlType, dtypes, isDType, sizeOf, type DType } from './dtype.js';
import { ArgumentError, ShapeError } from './errors.js';

test('names, type numbers and infos agree', () => {
  for (const name of dtypes) {
    const info = dtypeInfo(name);
    expect(info.name).toBe(name);
    expect(dtypeOfGgmlType(info.ggmlType)).toBe(name);
    expect(isDType(name)).toBe(true);
    expect(info.isQuantized).toBe(info.blockSize > 1);
    expect(sizeOf(name, info.blockSize * 3)).toBe(info.blockBytes * 3);
  }
  expect(new Set(dtypes).size).toBe(32);
});

test('unknown data types', () => {
  for (const name of ['F32', 'q4_k', '', 'toString', '__proto__']) {
    expect(isDType(name)).toBe(false);
    expect(() => dtypeInfo(name as DType)).toThrow(ArgumentError);
  }
  // 4 and 5 are the removed q4_2 and q4_3.
  for (const number of [-1, 4, 5, 31, 40, 1.5, NaN]) expect(dtypeOfGgmlType(number)).toBeUndefined();
});

test('invalid sizes', () => {
  expect(() => sizeOf('q4_0', 31)).toThrow('sizeOf(q4_0): number of values, expected a multiple of 32, got 31');
  for (const count of [-32, 0.5, NaN, Infinity, 2 ** 53]) expect(() => sizeOf('q4_0', count)).toThrow(ShapeError);
  expect(() => sizeOf('f64', 2 ** 52)).toThrow(ShapeError);
  expect(sizeOf('f32', 0)).toBe(0);
});
