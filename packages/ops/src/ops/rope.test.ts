import { describe, expect, it } from 'vitest';
import { floats, ints, runOp } from '../../test/run-op.js';

const quarter = Math.PI / 2;

describe('rope', () => {
  it('rotates adjacent pairs or halves by 90 degrees', () => {
    const inputs = {
      x: floats([1, 2, 3, 4, 5, 6], 1, 1, 6),
      positions: ints([1], 1),
      frequencies: floats([quarter, quarter], 2),
    };
    const round = (values: number[]): number[] => values.map((value) => Math.round(value * 1e5) / 1e5 + 0);
    expect(round(runOp('rope', inputs, { layout: 'neighbors' })['y'])).toEqual([-2, 1, -4, 3, 5, 6]);
    expect(round(runOp('rope', inputs, { layout: 'halves' })['y'])).toEqual([-3, -4, 1, 2, 5, 6]);
    expect(round(runOp('rope', inputs, { layout: 'halves', amplitude: 2 })['y'])).toEqual([-6, -8, 2, 4, 5, 6]);
  });

  it('equals a product of complex numbers', () => {
    const x = floats(
      Float32Array.from({ length: 2 * 3 * 8 }, (_, i) => Math.sin(3 * i)),
      2,
      3,
      8,
    );
    const frequencies = floats([1, 0.3, 0.01], 3);
    const positions = ints([0, 12345], 2);
    const { y } = runOp('rope', { x, positions, frequencies }, { layout: 'neighbors' });
    for (let head = 0; head < 3; head++) {
      expect(y.slice(head * 8, head * 8 + 8)).toEqual([...x.data.subarray(head * 8, head * 8 + 8)]); // position 0
      for (let pair = 0; pair < 3; pair++) {
        const at = 24 + head * 8 + 2 * pair;
        const radius = Math.hypot(x.data[at], x.data[at + 1]);
        const angle = Math.atan2(x.data[at + 1], x.data[at]) + 12345 * frequencies.data[pair];
        expect(y[at]).toBeCloseTo(radius * Math.cos(angle), 6);
        expect(y[at + 1]).toBeCloseTo(radius * Math.sin(angle), 6);
      }
      expect(y.slice(24 + head * 8 + 6, 24 + head * 8 + 8)).toEqual([
        ...x.data.subarray(24 + head * 8 + 6, 24 + head * 8 + 8),
      ]);
    }
  });

  it('makes dot products depend only on the distance of positions', () => {
    const frequencies = floats([1, 0.1], 2);
    const turn = (values: number[], position: number): number[] =>
      runOp('rope', { x: floats(values, 1, 1, 4), positions: ints([position], 1), frequencies }, { layout: 'halves' })[
        'y'
      ];
    const dot = (a: number[], b: number[]): number => a.reduce((sum, value, i) => sum + value * b[i], 0);
    const near = dot(turn([1, 2, 3, 4], 7), turn([4, 3, 2, 1], 5));
    expect(dot(turn([1, 2, 3, 4], 10_007), turn([4, 3, 2, 1], 10_005))).toBeCloseTo(near, 4);
  });
});
