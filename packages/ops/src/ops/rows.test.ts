/** The ops that copy rows: embedding-lookup, gather-rows, scatter-rows, position-append, kv-append. */
import { encode, sizeOf } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { floats, ints, packed, runOp, zeros } from '../../test/run-op.js';

describe('embedding-lookup', () => {
  it('copies the row of each token', () => {
    const table = floats([1, 2, 3, 4, 5, 6], 3, 2);
    expect(runOp('embedding-lookup', { table, tokens: ints([2, 0, 2], 3) })['y']).toEqual([5, 6, 1, 2, 5, 6]);
    expect(runOp('embedding-lookup', { table, tokens: ints([1], 1) }, { scale: 0.5 })['y']).toEqual([1.5, 2]);
  });

  it('decodes only the requested rows', () => {
    const values = Float32Array.from({ length: 96 }, (_, i) => (i % 32 === 31 ? -127 : (i % 32) * (1 + (i >> 5))));
    const bytes = new Uint8Array(sizeOf('q8_0', 96)).fill(0xff); // rows that are not written decode to NaN
    encode('q8_0', values.subarray(32, 64), bytes, { byteOffset: 34 });
    const { y } = runOp('embedding-lookup', { table: packed('q8_0', bytes, 3, 32), tokens: ints([1], 1) });
    expect(y).toEqual([...values.subarray(32, 64)]); // a scale of 1: integers are exact
  });
});

describe('gather-rows', () => {
  it('gathers rows in any order', () => {
    expect(runOp('gather-rows', { x: floats([1, 2, 3, 4], 2, 2), rows: ints([1, 1, 0], 3) })['y']).toEqual([
      3, 4, 3, 4, 1, 2,
    ]);
  });
});

describe('scatter-rows', () => {
  it('stores rows by index and skips negative indices', () => {
    const y = floats([1, 2, 3, 4, 5, 6], 3, 2);
    runOp('scatter-rows', { x: floats([7, 8, 9, 10, 11, 12], 3, 2), rows: ints([2, -1, 0], 3) }, {}, { y });
    expect([...y.data]).toEqual([11, 12, 3, 4, 7, 8]);
  });

  it('copies every bit', () => {
    const y = zeros('f32', 1, 3);
    const x = floats([-0, NaN, 1e-40], 1, 3);
    runOp('scatter-rows', { x, rows: ints([0], 1) }, {}, { y });
    expect(new Uint8Array(y.data.buffer)).toEqual(new Uint8Array(x.data.buffer));
  });
});

describe('position-append', () => {
  it('stores positions by slot and skips negative slots', () => {
    const slotPositions = ints([-1, -1, 7, -1], 2, 2);
    runOp('position-append', { slots: ints([3, -1, 0], 3), positions: ints([40, 41, 42], 3) }, {}, { slotPositions });
    expect([...slotPositions.data]).toEqual([42, -1, 7, 40]);
  });
});

describe('kv-append', () => {
  it('stores heads separately, and slots within blocks', () => {
    // 2 blocks, 2 heads, 3 slots, key width 2, value width 1
    const keys = zeros('f32', 2, 2, 3, 2);
    const values = zeros('f32', 2, 2, 3, 1);
    const k = floats([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 3, 2, 2);
    const v = floats([21, 22, 23, 24, 25, 26], 3, 2, 1);
    runOp('kv-append', { k, v, slots: ints([4, -3, 0], 3) }, {}, { keys, values });
    const expectedKeys = new Array(24).fill(0);
    expectedKeys.splice(14, 2, 1, 2); // block 1, head 0, slot 1
    expectedKeys.splice(20, 2, 3, 4); // block 1, head 1, slot 1
    expectedKeys.splice(0, 2, 9, 10); // block 0, head 0, slot 0
    expectedKeys.splice(6, 2, 11, 12); // block 0, head 1, slot 0
    expect([...keys.data]).toEqual(expectedKeys);
    expect([...values.data]).toEqual([25, 0, 0, 26, 0, 0, 0, 21, 0, 0, 22, 0]);
  });

  it.each(['f16', 'bf16', 'q8_0', 'q4_0', 'q4_1', 'q5_0', 'q5_1'] as const)('rounds to %s like the codec', (dtype) => {
    const k = floats(
      Float32Array.from({ length: 128 }, (_, i) => Math.sin(i) * 3),
      2,
      1,
      64,
    );
    const v = floats(
      Float32Array.from({ length: 64 }, (_, i) => Math.cos(i)),
      2,
      1,
      32,
    );
    const keys = zeros(dtype, 1, 1, 4, 64);
    const values = zeros(dtype, 1, 1, 4, 32);
    runOp('kv-append', { k, v, slots: ints([2, 1], 2) }, {}, { keys, values });
    const expected = new Uint8Array(sizeOf(dtype, 256));
    encode(dtype, k.data.subarray(0, 64) as Float32Array, expected, { byteOffset: sizeOf(dtype, 128) });
    encode(dtype, k.data.subarray(64) as Float32Array, expected, { byteOffset: sizeOf(dtype, 64) });
    expect(keys.data).toEqual(expected);
    expect(values.data.subarray(0, sizeOf(dtype, 32))).toEqual(new Uint8Array(sizeOf(dtype, 32)));
    expect(values.data.subarray(sizeOf(dtype, 32), sizeOf(dtype, 96)).some((byte) => byte !== 0)).toBe(true);
  });
});
