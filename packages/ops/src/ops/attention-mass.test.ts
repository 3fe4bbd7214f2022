/** Attention masses derived by hand. */
import { ShapeError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { floats, ints, runOp } from '../../test/run-op.js';
import type { TensorView } from '../spec/op-spec.js';

/** Two blocks of two slots, in the order 1, 0; keys of one number, two query heads on one KV head. */
function cache(keys: readonly number[], positions: readonly number[], length: number): Record<string, TensorView> {
  const inOrder = <T>(values: readonly T[]): T[] => [...values.slice(2), ...values.slice(0, 2)];
  return {
    keys: floats(inOrder(keys), 2, 1, 2, 1),
    values: floats([NaN, NaN, NaN, NaN], 2, 1, 2, 1),
    slotPositions: ints(inOrder(positions), 2, 2),
    blockTable: ints([1, 0], 1, 2),
    contextLengths: ints([length], 1),
  };
}

describe('attention-mass', () => {
  it('sums the probabilities of query heads and tokens', () => {
    const three = Math.log(3);
    const inputs = {
      ...cache([0, three, 0, 99], [0, 1, 2, 3], 3),
      q: floats([1, 0, 1, 0], 2, 2, 1),
      positions: ints([1, 2], 2),
      sequences: ints([0, 0], 2),
    };
    const { mass } = runOp('attention-mass', inputs, { scale: 1 });
    // (1, 3) / 4 and (1, 1) / 2 of the first token, (1, 3, 1) / 5 and thirds of the second
    const expected = [1 / 4 + 1 / 2 + 1 / 5 + 1 / 3, 3 / 4 + 1 / 2 + 3 / 5 + 1 / 3, 1 / 5 + 1 / 3, 0];
    for (const [j, value] of expected.entries()) expect(mass?.[j]).toBeCloseTo(value, 6);
    const sum = (mass ?? []).reduce((total, value) => total + value, 0);
    expect(sum).toBeCloseTo(4, 6); // heads times tokens
  });

  it('accumulates, and is masked by position', () => {
    const inputs = {
      ...cache([0, 0, 0, 0], [7, -1, 2, 9], 4),
      q: floats([1, 1], 1, 2, 1),
      positions: ints([8], 1),
      sequences: ints([0], 1),
      previous: floats([10, 20, 30, 40], 1, 1, 2, 2),
    };
    expect(runOp('attention-mass', inputs, { scale: 1 })['mass']).toEqual([11, 20, 31, 40]);
    expect(runOp('attention-mass', inputs, { scale: 1, window: 2 })['mass']).toEqual([12, 20, 30, 40]);
  });

  it('rejects a number of heads that is not a multiple of the KV heads', () => {
    const inputs = {
      ...cache([0, 0, 0, 0], [0, 1, 2, 3], 4),
      keys: floats(new Float32Array(8), 2, 2, 2, 1),
      values: floats(new Float32Array(8), 2, 2, 2, 1),
      q: floats([1, 1, 1], 1, 3, 1),
      positions: ints([3], 1),
      sequences: ints([0], 1),
    };
    expect(() => runOp('attention-mass', inputs, { scale: 1 })).toThrow(ShapeError);
  });
});

describe('hadamard', () => {
  it('multiplies each part of a row with the orthonormal matrix, and is its own inverse', () => {
    const rotate = (values: readonly number[], ...shape: number[]): number[] =>
      runOp('hadamard', { x: floats(values, ...shape) })['y'] as number[];
    expect(rotate([1, 2, 3, 4], 1, 4)).toEqual([5, -1, -2, 0]);
    const root = Math.fround(Math.SQRT1_2);
    expect(rotate([1, 0, 0, 1, 2, 2], 6)).toEqual([root, root, root, -root, Math.fround(4 * Math.SQRT1_2), 0]);
    expect(rotate(rotate([3, -1, 4, 1, -5, 9, 2, 6], 2, 4), 2, 4)).toEqual([3, -1, 4, 1, -5, 9, 2, 6]);
    expect(() => rotate([1, 2, 3], 3)).toThrow(ShapeError);
  });
});
