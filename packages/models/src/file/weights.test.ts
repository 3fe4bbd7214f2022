import type { StoredTensor } from '@winnow/bytes';
import { sizeOf, type DType, type Shape } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { collectWeights, loadWeight, maxPieceBytes, streamWeight } from './weights.js';

function storeWith(dtype: DType, shape: Shape, bytes: Uint8Array, onRead?: (length: number) => void) {
  const stored: StoredTensor = {
    name: 'x',
    dtype,
    shape,
    sizeBytes: bytes.length,
    async read(target, { byteOffset = 0 } = {}) {
      onRead?.(target.length);
      target.set(bytes.subarray(byteOffset, byteOffset + target.length));
    },
  };
  const store = { name: 'file', tensors: new Map([['x', stored]]), close: async () => undefined };
  return collectWeights(store, [{ name: 'x', storedName: 'x', shape }]).get('x')!;
}

/** More than two pieces of 8 MiB, and not a whole number of them. */
const numValues = 2 * 2 ** 20 + 77;

test.each(['f64', 'f32'] as const)('a large %s tensor is loaded in pieces, with progress for each', async (dtype) => {
  const given = dtype === 'f64' ? new Float64Array(numValues) : new Float32Array(numValues);
  for (let index = 0; index < numValues; index++) given[index] = index / 3;
  const lengths: number[] = [];
  const weight = storeWith(dtype, [numValues], new Uint8Array(given.buffer), (length) => lengths.push(length));
  // not at a multiple of four bytes, since backends may align memory in any way
  const target = new Uint8Array(weight.sizeBytes + 1).subarray(1);
  let numBytes = 0;
  await loadWeight(weight, target, { onBytes: (count) => (numBytes += count) });
  expect(numBytes).toBe(given.byteLength);
  expect(lengths.length).toBe(Math.ceil(given.byteLength / (8 * 2 ** 20)));
  const found = new Float32Array(target.slice().buffer);
  expect([0, 1, 2 ** 20 - 1, 2 ** 20, 2 ** 20 + 1, numValues - 1].map((index) => found[index])).toEqual(
    [0, 1, 2 ** 20 - 1, 2 ** 20, 2 ** 20 + 1, numValues - 1].map((index) => Math.fround(index / 3)),
  );
});

test.each(['f64', 'f32', 'f16'] as const)('a large %s tensor is written in pieces of bounded size', async (dtype) => {
  const given = new Uint8Array(numValues * sizeOf(dtype, 1));
  for (let index = 0; index < given.length; index++) given[index] = (index * 7) % 60;
  const weight = storeWith(dtype, [numValues], given);
  const whole = new Uint8Array(weight.sizeBytes);
  await loadWeight(weight, whole);
  const found = new Uint8Array(weight.sizeBytes);
  let end = 0;
  const sizes: number[] = [];
  await streamWeight(weight, async (bytes, byteOffset) => {
    expect(byteOffset).toBe(end);
    found.set(bytes, byteOffset);
    sizes.push(bytes.length);
    end += bytes.length;
  });
  expect(Buffer.compare(found, whole)).toBe(0);
  expect(sizes.length).toBeGreaterThan(1);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(maxPieceBytes);
});

test('aborting between pieces throws the reason', async () => {
  const controller = new AbortController();
  const weight = storeWith('f64', [numValues], new Uint8Array(8 * numValues), () =>
    controller.abort(new Error('enough')),
  );
  await expect(loadWeight(weight, new Uint8Array(weight.sizeBytes), { signal: controller.signal })).rejects.toThrow(
    'enough',
  );
});
