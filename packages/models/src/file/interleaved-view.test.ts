import type { StoredTensor } from '@winnow/bytes';
import { describe, expect, test } from 'vitest';
import { interleavedView } from './interleaved-view.js';

const [numRows, width, numMatrices] = [7, 5, 3];

/** Byte `b` of row r of matrix m is 100 m + 10 r + b. */
function matrix(m: number): StoredTensor {
  const bytes = Uint8Array.from({ length: numRows * width * 2 }, (_, at) => 100 * m + at);
  const read: StoredTensor['read'] = async (target, { byteOffset = 0 } = {}) =>
    target.set(bytes.subarray(byteOffset, byteOffset + target.length));
  return { name: `m${m}`, dtype: 'f16', shape: [numRows, width], sizeBytes: bytes.length, read };
}

describe('interleaved matrices', () => {
  const view = interleavedView('all', [0, 1, 2].map(matrix));
  const rowBytes = 2 * width;
  const expected = Uint8Array.from({ length: numRows * numMatrices * rowBytes }, (_, at) => {
    const [row, m] = [Math.floor(at / (numMatrices * rowBytes)), Math.floor(at / rowBytes) % numMatrices];
    return 100 * m + row * rowBytes + (at % rowBytes);
  });

  test('alternate the rows of each matrix', async () => {
    expect(view).toMatchObject({ name: 'all', dtype: 'f16', shape: [numRows, numMatrices, width], sizeBytes: 210 });
    const bytes = new Uint8Array(view.sizeBytes);
    await view.read(bytes);
    expect(bytes).toEqual(expected);
  });

  test('can be read at any range', async () => {
    for (let begin = 0; begin < view.sizeBytes; begin += 13) {
      for (let end = begin; end <= view.sizeBytes; end += 17) {
        const bytes = new Uint8Array(end - begin);
        await view.read(bytes, { byteOffset: begin });
        expect(bytes).toEqual(expected.subarray(begin, end));
      }
    }
  });
});
