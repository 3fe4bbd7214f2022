import { CapacityError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { hashOf, ImageRows, movesOn } from './image-rows.js';

const tile = (value: number): { width: number; height: number; data: Uint8Array } => ({
  ...{ width: 1, height: 1 },
  data: Uint8Array.of(value, 2, 3),
});

const plain = { rescale: 1, mean: [0, 0, 0], std: [1, 1, 1] };

test('tiles that are normalized otherwise have other hashes', async () => {
  expect(await hashOf(tile(1), { ...plain, mean: [0, 0, 0.5] })).not.toBe(await hashOf(tile(1), plain));
});

test('equal tiles have equal ids, which are negative and lead to their rows', async () => {
  const hashes = await Promise.all([tile(1), tile(1), tile(2)].map((each) => hashOf(each, plain)));
  expect(hashes[0]).toBe(hashes[1]);
  const [first, second] = [new ImageRows(2), new ImageRows(2)];
  const ids = first.add(hashes[0] as string, Float32Array.of(1, 2, 3, 4));
  expect(ids.every((id) => id < 0)).toBe(true);
  expect(second.add(hashes[1] as string, Float32Array.of(1, 2, 3, 4))).toEqual(ids);
  expect(second.add(hashes[2] as string, Float32Array.of(5, 6, 7, 8))).not.toEqual(ids);
  expect([...first.rowOf(ids[1] as number).values]).toEqual([3, 4]);
  expect(first.find(hashes[0] as string)).toEqual(ids);
});

test('ids that another tile has are not given again', () => {
  const rows = new ImageRows(1);
  // the first row of both hashes is the same word
  const [a, b] = ['00000001'.repeat(8), `00000001${'00000002'.repeat(7)}`];
  const [first] = rows.add(a, Float32Array.of(1));
  const [second] = rows.add(b, Float32Array.of(2));
  expect(second).not.toBe(first);
  const valuesOf = (id: number | undefined): number[] => [...rows.rowOf(id as number).values];
  expect([...valuesOf(first), ...valuesOf(second)]).toEqual([1, 2]);
});

test('the tiles that were not used for longest are forgotten first', () => {
  const rows = new ImageRows(1, 8);
  const [a, b, c] = ['a', 'b', 'c'].map((digit) => digit.repeat(64)) as [string, string, string];
  const [idOfA] = rows.add(a, Float32Array.of(1));
  const [idOfB] = rows.add(b, Float32Array.of(2));
  expect(rows.find(a)).toBeDefined();
  rows.add(c, Float32Array.of(3));
  expect(rows.has(idOfA as number)).toBe(true);
  expect(rows.has(idOfB as number)).toBe(false);
  expect(rows.find(b)).toBeUndefined();
  expect(() => rows.rowOf(idOfB as number)).toThrow(CapacityError);
});

test('the rows of a grid turn by their row and column, and the text after them by the next position', () => {
  const rows = new ImageRows(1);
  const ids = rows.add('0123456789abcdef'.repeat(4), new Float32Array(6), { rows: 2, columns: 3 });
  let position = 10;
  const turned = [...ids].map((id) => {
    const { offset } = rows.rowOf(id);
    const coordinates = offset.map((each) => position + each);
    position += Number(movesOn(id));
    return coordinates;
  });
  expect(turned).toEqual([
    [10, 10, 10],
    [10, 10, 11],
    [10, 10, 12],
    [10, 11, 10],
    [10, 11, 11],
    [10, 11, 12],
  ]);
  expect(position).toBe(13);
});
