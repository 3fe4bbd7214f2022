import type { StoredTensor } from '@winnow/bytes';
import { describe, expect, it } from 'vitest';
import { gatheredRowsView, matrixRowsView } from './gathered-views.js';

it('a view of gathered rows reads any range: parts of a row, one row, several', async () => {
  const [numRows, rowBytes] = [6, 8];
  const bytes = Uint8Array.from({ length: numRows * rowBytes }, (_, i) => i);
  const stored: StoredTensor = {
    ...{ name: 'x', dtype: 'f32', shape: [numRows, 2], sizeBytes: bytes.length },
    async read(target, { byteOffset = 0 } = {}) {
      target.set(bytes.subarray(byteOffset, byteOffset + target.length));
    },
  };
  const order = [4, 0, 5, 1, 3, 2];
  const view = gatheredRowsView(stored, [numRows, 2], (row) => order[row] as number);
  const expected = order.flatMap((row) => [...bytes.subarray(row * rowBytes, (row + 1) * rowBytes)]);
  for (let begin = 0; begin < bytes.length; begin++) {
    for (const length of [1, 5, rowBytes, 3 * rowBytes + 1]) {
      const target = new Uint8Array(Math.min(length, bytes.length - begin));
      await view.read(target, { byteOffset: begin });
      expect([...target]).toEqual(expected.slice(begin, begin + target.length));
    }
  }
});

it('every second row of each matrix of a stack', async () => {
  const values = Float32Array.from({ length: 12 }, (_, i) => i);
  const bytes = new Uint8Array(values.buffer);
  const stored: StoredTensor = {
    ...{ name: 'x', dtype: 'f32', shape: [2, 6], sizeBytes: bytes.length },
    async read(target, { byteOffset = 0 } = {}) {
      target.set(bytes.subarray(byteOffset, byteOffset + target.length));
    },
  };
  const view = matrixRowsView(stored, 1, 3, 2);
  expect(view.shape).toEqual([2, 3]);
  const read = new Uint8Array(view.sizeBytes);
  await view.read(read);
  expect([...new Float32Array(read.buffer)]).toEqual([1, 3, 5, 7, 9, 11]);
});

describe('the bytes that a view reads', () => {
  const [numHeads, rowBytes] = [16, 4];

  async function bytesRead(stored: number, count: number, rowOf: (row: number) => number): Promise<number> {
    let sum = 0;
    const tensor: StoredTensor = {
      ...{ name: 'x', dtype: 'f32', shape: [stored, 1], sizeBytes: stored * rowBytes },
      async read(target) {
        sum += target.length;
      },
    };
    const view = gatheredRowsView(tensor, [count, 1], rowOf);
    await view.read(new Uint8Array(view.sizeBytes));
    return sum / view.sizeBytes;
  }

  it('are those of its rows, if each head has a block of them', async () => {
    const [size, perHead] = [128, 768];
    const rowOf = (row: number): number => Math.floor(row / size) * perHead + (row % size);
    expect(await bytesRead(numHeads * perHead, numHeads * size, rowOf)).toBe(1);
  });

  it('are those of its rows, if rows are permuted within heads', async () => {
    const size = 256;
    const rowOf = (row: number): number => row - (row % size) + (row % 2) * (size / 2) + Math.floor((row % size) / 2);
    expect(await bytesRead(numHeads * size, numHeads * size, rowOf)).toBeLessThan(1.1);
  });
});
