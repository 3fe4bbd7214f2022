import { describe, expect, it } from 'vitest';
import { floats, ints, runOp } from '../../test/run-op.js';
import { poolingKinds, type PoolingKind } from './pool-rows.js';

/** Three runs of rows: rows 1 to 3, row 0, and none. */
function pooled(kind: PoolingKind): number[] {
  const x = floats([9, -9, 1, 10, 2, -20, 6, 40], 4, 2);
  return runOp('pool-rows', { x, starts: ints([1, 0, 4], 3), lengths: ints([3, 1, 0], 3) }, { kind })['y'] as number[];
}

describe('pool-rows', () => {
  it.each<[PoolingKind, number, number]>([
    ['mean', 3, 10],
    ['first', 1, 10],
    ['last', 6, 40],
    ['max', 6, 40],
    ['weighted-mean', (1 + 4 + 18) / 6, (10 - 40 + 120) / 6],
    ['mean-sqrt', 9 / Math.sqrt(3), 30 / Math.sqrt(3)],
  ])('%s of several rows, one row and no rows', (kind, first, second) => {
    expect(pooled(kind)).toEqual([Math.fround(first), Math.fround(second), 9, -9, 0, 0]);
  });

  it('covers every kind', () => expect(poolingKinds).toHaveLength(6));

  it('keeps NaN', () => {
    const x = floats([NaN, 1], 2, 1);
    const inputs = { x, starts: ints([0], 1), lengths: ints([2], 1) };
    expect(runOp('pool-rows', inputs, { kind: 'max' })['y']).toEqual([NaN]);
    expect(runOp('pool-rows', inputs, { kind: 'last' })['y']).toEqual([1]);
  });
});
