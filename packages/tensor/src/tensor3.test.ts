import { expect, test } from 'vitest';
import { ShapeError } from './errors.js';
import { Tensor3 } from './tensor3.js';

test('rows and slices share memory', () => {
  const tensor = Tensor3.create(3, 2, 4);
  tensor.row(1, 1).set([1, 2, 3, 4]);
  expect([...tensor.data.subarray(12, 16)]).toEqual([1, 2, 3, 4]);
  expect([...tensor.slice(1, 3).row(0, 1)]).toEqual([1, 2, 3, 4]);
  expect(tensor.view().at(1, 1, 2)).toBe(3);
  expect(tensor.view().permute([1, 0, 2]).at(1, 1, 2)).toBe(3);
  expect(tensor.shape).toEqual([3, 2, 4]);
});

test('from copies, the constructor does not', () => {
  const values = new Float32Array([1, 2, 3, 4]);
  const copy = Tensor3.from(values, 1, 2, 2);
  const wrapped = new Tensor3(values, 1, 2, 2);
  values[0] = 9;
  expect(copy.row(0, 0)[0]).toBe(1);
  expect(wrapped.row(0, 0)[0]).toBe(9);
  expect(Tensor3.from([5], 1, 1, 1).data).toEqual(new Float32Array([5]));
});

test('empty tensors', () => {
  expect(Tensor3.create(0, 2, 4).data.length).toBe(0);
  expect(Tensor3.create(3, 2, 4).slice(3, 3).seqLen).toBe(0);
});

test('rejects invalid shapes, rows and ranges', () => {
  const tensor = Tensor3.create(3, 2, 4);
  expect(() => new Tensor3(new Float32Array(23), 3, 2, 4)).toThrow('Tensor3: values of [3, 2, 4], expected 24, got 23');
  expect(() => Tensor3.from([1, 2], 1, 1, 1)).toThrow(ShapeError);
  for (const dims of [
    [-1, 2, 4],
    [1.5, 2, 4],
    [NaN, 2, 4],
    [2 ** 20, 2 ** 20, 2 ** 20],
    [2 ** 20, 2 ** 20, 1],
  ]) {
    expect(() => Tensor3.create(dims[0], dims[1], dims[2])).toThrow(ShapeError);
  }
  for (const [s, h] of [
    [3, 0],
    [0, 2],
    [-1, 0],
    [0, -1],
    [0.5, 0],
    [0, NaN],
  ]) {
    expect(() => tensor.row(s, h)).toThrow(ShapeError);
  }
  for (const [begin, end] of [
    [2, 1],
    [0, 4],
    [-1, 2],
    [0.5, 1],
  ])
    expect(() => tensor.slice(begin, end)).toThrow(ShapeError);
});
