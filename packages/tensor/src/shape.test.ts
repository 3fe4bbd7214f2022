import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ShapeError } from './errors.js';
import { contiguousStrides, equalShapes, formatShape, leastCommonMultiple, numElements, tensorBytes } from './shape.js';

test('products', () => {
  expect(numElements([])).toBe(1);
  expect(numElements([2, 3, 4])).toBe(24);
  expect(numElements([5, 0])).toBe(0);
});

test('products are exact or rejected', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 2 ** 31 }), { maxLength: 5 }), (shape) => {
      const exact = shape.reduce((product, dim) => product * BigInt(dim), 1n);
      if (exact <= BigInt(Number.MAX_SAFE_INTEGER)) expect(BigInt(numElements(shape))).toBe(exact);
      else expect(() => numElements(shape)).toThrow(ShapeError);
    }),
  );
});

test('invalid dimensions', () => {
  for (const dim of [-1, 0.5, NaN, Infinity, 2 ** 53]) expect(() => numElements([2, dim])).toThrow(ShapeError);
});

test('bytes of tensors: blocks run along the last dimension', () => {
  expect(tensorBytes('f32', [2, 3])).toBe(24);
  expect(tensorBytes('f32', [])).toBe(4);
  expect(tensorBytes('q8_0', [3, 64])).toBe(3 * 2 * 34);
  expect(() => tensorBytes('q8_0', [64, 3])).toThrow(ShapeError);
  expect(() => tensorBytes('q8_0', [])).toThrow(ShapeError);
  expect(() => tensorBytes('f64', [2 ** 40, 2 ** 12])).toThrow(ShapeError);
});

test('strides are the products of later axes', () => {
  expect(contiguousStrides([2, 3, 4])).toEqual([12, 4, 1]);
  expect(contiguousStrides([])).toEqual([]);
  fc.assert(
    fc.property(fc.array(fc.nat(9), { maxLength: 6 }), (shape) => {
      const strides = contiguousStrides(shape);
      expect(strides.every((stride, axis) => stride === numElements(shape.slice(axis + 1)))).toBe(true);
    }),
  );
});

test('comparing and printing', () => {
  expect(equalShapes([1, 2], [1, 2])).toBe(true);
  expect(equalShapes([1, 2], [1, 2, 1])).toBe(false);
  expect(equalShapes([1, 2], [2, 1])).toBe(false);
  expect(formatShape([2, 'N'])).toBe('[2, N]');
});

test('the least common multiple is the first multiple of one that the other divides', () => {
  const sizes = fc.integer({ min: 1, max: 300 });
  fc.assert(
    fc.property(sizes, sizes, (a, b) => {
      let expected = a;
      while (expected % b !== 0) expected += a;
      expect(leastCommonMultiple(a, b)).toBe(expected);
    }),
  );
});
