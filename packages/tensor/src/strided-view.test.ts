import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ShapeError } from './errors.js';
import { numElements } from './shape.js';
import { StridedView } from './strided-view.js';

const iota = (length: number): Int32Array => Int32Array.from({ length }, (_, i) => i);
const shapes = fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 4 });

/** All index tuples of a shape, in row-major order. */
function* tuples(shape: readonly number[]): Generator<number[]> {
  if (shape.length === 0) return yield [];
  for (let first = 0; first < shape[0]; first++) for (const rest of tuples(shape.slice(1))) yield [first, ...rest];
}

function elements(view: StridedView<Int32Array>): number[] {
  return [...tuples(view.shape)].map((indices) => view.at(...indices));
}

test('rows, columns, permutation and slices of a matrix', () => {
  const view = new StridedView(iota(6), [2, 3]);
  expect(view.at(1, 2)).toBe(5);
  expect(elements(view.transpose(0, 1))).toEqual([0, 3, 1, 4, 2, 5]);
  expect(elements(view.slice(1, 0, 3, 2))).toEqual([0, 2, 3, 5]);
  expect(elements(view.select(1, 1))).toEqual([1, 4]);
  expect(elements(view.reshape([3, 2]).select(0, 1))).toEqual([2, 3]);
  expect(view.select(0, 1).values()).toEqual(new Int32Array([3, 4, 5]));
});

test('a default view shares memory, is contiguous and covers its data', () => {
  fc.assert(
    fc.property(shapes, (shape) => {
      const data = iota(numElements(shape));
      const view = new StridedView(data, shape);
      expect(view.isContiguous).toBe(true);
      expect(view.values().buffer).toBe(data.buffer);
      expect(elements(view)).toEqual([...data]);
    }),
  );
});

test('a permuted view has the permuted elements, and the inverse permutation restores it', () => {
  fc.assert(
    fc.property(
      shapes.chain((shape) =>
        fc.tuple(fc.constant(shape), fc.shuffledSubarray([...shape.keys()], { minLength: shape.length })),
      ),
      ([shape, axes]) => {
        const view = new StridedView(iota(numElements(shape)), shape);
        const permuted = view.permute(axes);
        for (const indices of tuples(permuted.shape)) {
          const original: number[] = [];
          for (const [axis, source] of axes.entries()) original[source] = indices[axis];
          expect(permuted.at(...indices)).toBe(view.at(...original));
        }
        const inverse: number[] = [];
        for (const [axis, source] of axes.entries()) inverse[source] = axis;
        expect(permuted.permute(inverse).strides).toEqual(view.strides);
      },
    ),
  );
});

test('copyTo writes the elements in row-major order; for contiguous views they equal the data', () => {
  const slices = fc.record({ begin: fc.nat(4), length: fc.nat(4), step: fc.integer({ min: 1, max: 3 }) });
  fc.assert(
    fc.property(shapes, fc.array(slices, { minLength: 4, maxLength: 4 }), fc.boolean(), (shape, cuts, reverse) => {
      let view = new StridedView(iota(numElements(shape)), shape);
      for (const [axis, dim] of shape.entries()) {
        const begin = Math.min(cuts[axis].begin, dim);
        view = view.slice(axis, begin, Math.min(dim, begin + cuts[axis].length), cuts[axis].step);
      }
      if (reverse) view = view.permute([...shape.keys()].reverse());
      const expected = elements(view);
      const out = new Int32Array(view.numElements + 2).fill(-1);
      view.copyTo(out);
      expect([...out]).toEqual([...expected, -1, -1]);
      if (view.isContiguous) expect([...view.values()]).toEqual(expected);
      else expect(expected).not.toEqual([...view.data.subarray(view.offset, view.offset + view.numElements)]);
    }),
  );
});

test.each([
  [3, 2, 4],
  [2, 3, 2, 5],
])('copyTo advances every axis of a view of %i x %i x %i', (...shape) => {
  const view = new StridedView(iota(numElements(shape)), shape).permute([...shape.keys()].reverse());
  const out = new Int32Array(view.numElements);
  view.copyTo(out);
  expect([...out]).toEqual(elements(view));
});

test('negative and zero strides', () => {
  const reversed = new StridedView(iota(4), [4], { strides: [-1], offset: 3 });
  expect(elements(reversed)).toEqual([3, 2, 1, 0]);
  expect(reversed.isContiguous).toBe(false);
  expect(elements(new StridedView(iota(1), [2, 2], { strides: [0, 0] }))).toEqual([0, 0, 0, 0]);
});

test('rejects elements outside the data', () => {
  const data = iota(6);
  expect(() => new StridedView(data, [7])).toThrow(ShapeError);
  expect(() => new StridedView(data, [2, 3], { offset: 1 })).toThrow(ShapeError);
  expect(() => new StridedView(data, [2, 3], { offset: -1 })).toThrow(ShapeError);
  expect(() => new StridedView(data, [2], { strides: [-1] })).toThrow(ShapeError);
  expect(() => new StridedView(data, [2], { strides: [0.5] })).toThrow(ShapeError);
  expect(() => new StridedView(data, [2], { strides: [1, 1] })).toThrow(ShapeError);
  expect(() => new StridedView(data, [2], { strides: [NaN] })).toThrow(ShapeError);
  expect(() => new StridedView(data, [2 ** 30, 2 ** 30])).toThrow(ShapeError);
  expect(() => new StridedView(data, [2], { strides: [2 ** 52] })).toThrow(ShapeError);
});

test('rejects invalid indices, ranges, axes and shapes', () => {
  const view = new StridedView(iota(6), [2, 3]);
  for (const indices of [[2, 0], [0, 3], [-1, 0], [0], [0, 0, 0], [0.5, 0], [NaN, 0]]) {
    expect(() => view.at(...indices)).toThrow(ShapeError);
  }
  for (const [axis, begin, end, step] of [
    [2, 0, 1, 1],
    [0, 1, 0, 1],
    [0, 0, 3, 1],
    [0, -1, 1, 1],
    [0, 0, 1, 0],
    [0.5, 0, 1, 1],
  ]) {
    expect(() => view.slice(axis, begin, end, step)).toThrow(ShapeError);
  }
  for (const axes of [[0], [0, 0], [0, 2], [0, 1, 2]]) expect(() => view.permute(axes)).toThrow(ShapeError);
  expect(() => view.transpose(0, 2)).toThrow(ShapeError);
  expect(() => view.select(1, 3)).toThrow(ShapeError);
  expect(() => view.reshape([5])).toThrow(ShapeError);
  expect(() => view.transpose(0, 1).reshape([6])).toThrow(ShapeError);
  expect(() => view.transpose(0, 1).values()).toThrow(ShapeError);
  expect(() => view.copyTo(new Float32Array(5))).toThrow(ShapeError);
});
