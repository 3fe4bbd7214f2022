/** Ops over logits: softmax, log-sum-exp, arg-max, top-k. */
import { createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { floats, runOp } from '../../test/run-op.js';
import { selectTopK } from '../numerics/select-top-k.js';

const inf = Infinity;

describe('softmax', () => {
  it('is exact for logarithms', () => {
    const { y } = runOp('softmax', { x: floats([Math.log(1), Math.log(2), Math.log(5), -inf], 1, 4) });
    for (const [i, expected] of [0.125, 0.25, 0.625, 0].entries()) expect(y[i]).toBeCloseTo(expected, 7);
  });

  it('does not overflow, and is invariant under shifts', () => {
    expect(runOp('softmax', { x: floats([1000, 1000, -1000], 3) })['y']).toEqual([0.5, 0.5, 0]);
    expect(runOp('softmax', { x: floats([-1000, -1000], 2) })['y']).toEqual([0.5, 0.5]);
  });

  it('gives zeros if every value is -Infinity, and NaN for NaN and +Infinity at any place', () => {
    const rows = [
      [-inf, -inf],
      [NaN, -inf],
      [-inf, NaN],
      [1, NaN],
      [inf, 0],
      [0, inf],
    ];
    const { y } = runOp('softmax', { x: floats(rows.flat(), 6, 2) });
    expect(y).toEqual([0, 0, ...new Array(10).fill(NaN)]);
  });
});

describe('log-sum-exp', () => {
  it('is known for logarithms and equals', () => {
    const { y } = runOp('log-sum-exp', { x: floats([Math.log(1), Math.log(2), Math.log(5), 1000, 1000, 1000], 2, 3) });
    expect(y[0]).toBeCloseTo(Math.log(8), 6);
    expect(y[1]).toBe(Math.fround(1000 + Math.log(3)));
  });

  it('is -Infinity for an empty row, and NaN for NaN and +Infinity', () => {
    const rows = [
      [-inf, -inf],
      [NaN, -inf],
      [-inf, NaN],
      [0, NaN],
      [inf, 0],
    ];
    expect(runOp('log-sum-exp', { x: floats(rows.flat(), 5, 2) })['y']).toEqual([-inf, NaN, NaN, NaN, NaN]);
    expect(runOp('log-sum-exp', { x: floats([], 1, 0) })['y']).toEqual([-inf]);
  });
});

describe('arg-max', () => {
  it('returns the first of equals and skips NaN', () => {
    const rows = [
      [1, 3, 3],
      [NaN, -inf, NaN],
      [-inf, NaN, -1],
      [-0, 0, -0],
      [NaN, NaN, NaN],
      [-inf, -inf, -inf],
    ];
    expect(runOp('arg-max', { x: floats(rows.flat(), 6, 3) })['index']).toEqual([1, 1, 2, 0, 0, 0]);
  });
});

describe('top-k', () => {
  it('orders by value, then by index, NaN last', () => {
    const x = floats([2, NaN, 5, 2, inf, -inf, 5, NaN], 1, 8);
    const { values, indices } = runOp('top-k', { x }, { k: 8 });
    expect(indices).toEqual([4, 2, 6, 0, 3, 5, 1, 7]);
    expect(values).toEqual([inf, 5, 5, 2, 2, -inf, NaN, NaN]);
  });

  it('equals a stable sort truncated to k', () => {
    const rng = createRng(3);
    for (let run = 0; run < 200; run++) {
      const length = 1 + rng.nextInt(40);
      const row = Array.from({ length }, () => rng.nextInt(7) - 3);
      const k = 1 + rng.nextInt(length);
      const sorted = row.map((_, i) => i).sort((a, b) => row[b] - row[a] || a - b);
      const { values, indices } = runOp('top-k', { x: floats(row, 1, length) }, { k });
      expect(indices).toEqual(sorted.slice(0, k));
      expect(values).toEqual(indices.map((i) => row[i]));
    }
  });

  it('can write the values over its input row', () => {
    const rng = createRng(5);
    for (let run = 0; run < 100; run++) {
      const row = Float32Array.from({ length: 1 + rng.nextInt(60) }, () => rng.nextInt(9) / 4);
      const k = rng.nextInt(row.length + 1);
      const [expected, indices] = [new Int32Array(k), new Int32Array(k)];
      const values = new Float32Array(k);
      selectTopK(row, 0, row.length, k, expected, values);
      selectTopK(row, 0, row.length, k, indices, row);
      expect(indices).toEqual(expected);
      expect(row.subarray(0, k)).toEqual(values);
    }
  });
});
