import type { StoredTensor } from '@winnow/bytes';
import { FormatError, tensorBytes, type DType, type Shape } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { checkedFloats, mappedView, rowsView, stackedView, transposedView } from './stored-views.js';

function stored(dtype: DType, shape: Shape, bytes: Uint8Array, name = 'x'): StoredTensor {
  return {
    name,
    dtype,
    shape,
    sizeBytes: tensorBytes(dtype, shape),
    async read(target, { byteOffset = 0 } = {}) {
      expect(byteOffset + target.length).toBeLessThanOrEqual(bytes.length);
      target.set(bytes.subarray(byteOffset, byteOffset + target.length));
    },
  };
}

/** Contents of a view, read whole and in pieces of every length. */
async function contents(view: StoredTensor): Promise<Uint8Array> {
  const whole = new Uint8Array(view.sizeBytes);
  await view.read(whole);
  for (const length of [1, 3, 4, 7, view.sizeBytes]) {
    const pieces = new Uint8Array(view.sizeBytes);
    for (let begin = 0; begin < pieces.length; begin += length) {
      await view.read(pieces.subarray(begin, begin + length), { byteOffset: begin });
    }
    expect(pieces).toEqual(whole);
  }
  return whole;
}

const numbers = Float32Array.from({ length: 12 }, (_, i) => i + 0.5);
const bytes = new Uint8Array(numbers.buffer);
const floats = async (view: StoredTensor): Promise<number[]> => [
  ...new Float32Array((await contents(view)).buffer as ArrayBuffer),
];

test('rows of a matrix', async () => {
  const view = rowsView(stored('f32', [4, 3], bytes), 1, 3);
  expect(view).toMatchObject({ shape: [2, 3], dtype: 'f32', sizeBytes: 24 });
  expect(await floats(view)).toEqual([3.5, 4.5, 5.5, 6.5, 7.5, 8.5]);
});

test('rows of blocks', async () => {
  const block = Uint8Array.from({ length: 3 * 34 }, (_, i) => i);
  const view = rowsView(stored('q8_0', [3, 32], block), 2, 3);
  expect(await contents(view)).toEqual(block.subarray(68));
});

describe.each(['f32', 'f16', 'bf16', 'f64'] as const)('a transposed matrix of %s', (dtype) => {
  test('values keep their bytes', async () => {
    const width = tensorBytes(dtype, [1]);
    const data = Uint8Array.from({ length: 6 * width }, (_, i) => i);
    const view = transposedView('file', stored(dtype, [2, 3], data));
    expect(view).toMatchObject({ shape: [3, 2], dtype, sizeBytes: data.length });
    const expected = [0, 3, 1, 4, 2, 5].flatMap((i) => [...data.subarray(i * width, (i + 1) * width)]);
    expect([...(await contents(view))]).toEqual(expected);
  });
});

test('every matrix of a stack is transposed', async () => {
  const view = transposedView('file', stored('f32', [2, 3, 2], bytes));
  expect(view.shape).toEqual([2, 2, 3]);
  expect(await floats(view)).toEqual([0.5, 2.5, 4.5, 1.5, 3.5, 5.5, 6.5, 8.5, 10.5, 7.5, 9.5, 11.5]);
});

test('rows of a transposed matrix', async () => {
  const view = rowsView(transposedView('file', stored('f32', [3, 4], bytes)), 1, 2);
  expect(await floats(view)).toEqual([1.5, 5.5, 9.5]);
});

test('blocks and vectors are not transposed', () => {
  expect(() => transposedView('file', stored('q8_0', [2, 32], bytes))).toThrow(FormatError);
  expect(() => transposedView('file', stored('f32', [12], bytes))).toThrow(/file: x: expected an unquantized matrix/);
});

test('mapped values are f32, whatever the dtype of the file', async () => {
  const halves = Uint8Array.of(0, 0x3c, 0, 0xc0); // 1, -2
  const view = mappedView(stored('f16', [2], halves), (value) => value + 1);
  expect(view).toMatchObject({ dtype: 'f32', shape: [2], sizeBytes: 8 });
  expect(await floats(view)).toEqual([2, -1]);
});

test('integers are not weights', () => {
  expect(checkedFloats('file', stored('f32', [3], bytes)).dtype).toBe('f32');
  expect(() => checkedFloats('file', stored('i8', [2], bytes))).toThrow(FormatError);
});

test('stacked tensors', async () => {
  const parts = [0, 1, 2].map((i) => stored('f32', [4], bytes.subarray(16 * i, 16 * i + 16), `part.${i}`));
  const view = stackedView('file', 'all', parts);
  expect(view).toMatchObject({ shape: [3, 4], sizeBytes: 48 });
  expect(await floats(view)).toEqual([...numbers]);
  const other = stored('f32', [3], bytes, 'part.3');
  expect(() => stackedView('file', 'all', [...parts, other])).toThrow(
    /part\.3: expected f32 \[4\] as part\.0, got f32 \[3\]/,
  );
});
