import type { StoredTensor } from '@winnow/bytes';
import { createRng, decode, encode, FormatError, sizeOf, tensorBytes, type DType } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { transposedWeight } from './transposed-weight.js';

function storedTensor(dtype: DType, shape: readonly [number, number], values: Float32Array): StoredTensor {
  const bytes = new Uint8Array(sizeOf(dtype, values.length));
  encode(dtype, values, bytes);
  const read: StoredTensor['read'] = async (target, { byteOffset = 0 } = {}) =>
    target.set(bytes.subarray(byteOffset, byteOffset + target.length));
  return { name: 'down', dtype, shape, sizeBytes: bytes.length, read };
}

async function valuesOf(stored: StoredTensor): Promise<Float32Array> {
  const bytes = new Uint8Array(stored.sizeBytes);
  await stored.read(bytes);
  const values = new Float32Array((stored.shape[0] as number) * (stored.shape[1] as number));
  decode(stored.dtype, bytes, values);
  return values;
}

function random(numRows: number, numColumns: number): Float32Array {
  const rng = createRng(5);
  return Float32Array.from({ length: numRows * numColumns }, () => Math.fround(rng.nextGaussian()));
}

describe.each<[DType, number, number]>([
  ['f32', 7, 5],
  ['f16', 33, 64],
  ['bf16', 64, 31],
  ['q8_0', 64, 96],
  ['q4_0', 32, 64],
  ['q4_K', 256, 512],
])('%s, %i x %i', (dtype, numRows, numColumns) => {
  const stored = storedTensor(dtype, [numRows, numColumns], random(numRows, numColumns));

  test('holds the transposed values, requantized for block dtypes', async () => {
    const before = await valuesOf(stored);
    const view = transposedWeight(stored, dtype);
    expect(view.shape).toEqual([numColumns, numRows]);
    expect(view.sizeBytes).toBe(tensorBytes(view.dtype, view.shape));
    const transposed = Float32Array.from({ length: before.length }, (_, i) => {
      return before[(i % numRows) * numColumns + Math.floor(i / numRows)] as number;
    });
    const bytes = new Uint8Array(view.sizeBytes);
    encode(view.dtype, transposed, bytes);
    const expected = new Float32Array(transposed.length);
    decode(view.dtype, bytes, expected);
    expect(await valuesOf(view)).toEqual(expected);
  });

  test('reads any range like a part of the whole', async () => {
    const view = transposedWeight(stored, dtype);
    const whole = new Uint8Array(view.sizeBytes);
    await view.read(whole);
    const rowBytes = view.sizeBytes / numColumns;
    for (const [begin, length] of [
      [0, 1],
      [rowBytes, rowBytes],
      [rowBytes + 1, 2 * rowBytes],
      [view.sizeBytes - 3, 3],
    ] as const) {
      const part = new Uint8Array(length);
      await view.read(part, { byteOffset: begin });
      expect(part).toEqual(whole.slice(begin, begin + length));
    }
  });
});

test('rows that are not whole blocks are stored as q8_0 or f16', () => {
  expect(transposedWeight(storedTensor('q4_K', [96, 256], random(96, 256)), 'q4_K').dtype).toBe('q8_0');
  expect(transposedWeight(storedTensor('q8_0', [20, 32], random(20, 32)), 'q8_0').dtype).toBe('f16');
});

test('values that a block cannot represent are rejected by name', async () => {
  const values = random(32, 32);
  values[40] = Infinity;
  const view = transposedWeight(storedTensor('f32', [32, 32], values), 'q8_0');
  await expect(view.read(new Uint8Array(view.sizeBytes))).rejects.toThrow(FormatError);
});

test('a read can span two tiles', async () => {
  const numRows = (1 << 22) + 4; // a tile holds 2^23 values: one column
  // 100 and 101 in every row
  const read: StoredTensor['read'] = async (target) =>
    void new Uint32Array(target.buffer, target.byteOffset, target.length / 4).fill(100 + 2 ** 16 * 101);
  const stored: StoredTensor = { name: 'down', dtype: 'f16', shape: [numRows, 2], sizeBytes: 4 * numRows, read };
  const part = new Uint16Array(4);
  await transposedWeight(stored, 'f16').read(new Uint8Array(part.buffer), { byteOffset: 2 * numRows - 4 });
  expect([...part]).toEqual([100, 100, 101, 101]);
});
