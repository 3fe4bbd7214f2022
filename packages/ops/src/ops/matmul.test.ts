import { decode, encode, sizeOf, type DType } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { floats, packed, runOp } from '../../test/run-op.js';

describe('matmul', () => {
  it('multiplies with rows of the weight', () => {
    const x = floats([1, 2, 3, 4, 5, 6], 2, 3);
    const weight = floats([1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1], 4, 3);
    expect(runOp('matmul', { x, weight })).toEqual({ y: [1, 2, 3, 6, 4, 5, 6, 15] });
    expect(runOp('matmul', { x, weight, bias: floats([10, 20, 30, 40], 4) })).toEqual({
      y: [11, 22, 33, 46, 14, 25, 36, 55],
    });
  });

  it('sums without losing small terms', () => {
    const x = floats([1, 2 ** -30, -1], 1, 3);
    expect(runOp('matmul', { x, weight: floats([1, 1, 1], 1, 3) })['y']).toEqual([2 ** -30]);
  });

  it('gives the bias, or zeros, for zero input columns', () => {
    expect(runOp('matmul', { x: floats([], 1, 0), weight: floats([], 2, 0) })['y']).toEqual([0, 0]);
    expect(runOp('matmul', { x: floats([], 1, 0), weight: floats([], 2, 0), bias: floats([3, 4], 2) })['y']).toEqual([
      3, 4,
    ]);
    expect(runOp('matmul', { x: floats([], 0, 2), weight: floats([1, 2], 1, 2) })['y']).toEqual([]);
  });

  it.each<DType>(['f16', 'bf16', 'q4_0', 'q8_0', 'q5_1', 'q4_K', 'q6_K'])('decodes %s', (dtype) => {
    const values = Float32Array.from({ length: 3 * 256 }, (_, i) => Math.sin(i * i));
    const bytes = new Uint8Array(sizeOf(dtype, values.length));
    encode(dtype, values, bytes);
    const decoded = new Float32Array(values.length);
    decode(dtype, bytes, decoded);
    const x = floats(values.subarray(100, 356), 1, 256);
    expect(runOp('matmul', { x, weight: packed(dtype, bytes, 3, 256) })).toEqual(
      runOp('matmul', { x, weight: floats(decoded, 3, 256) }),
    );
  });
});
