/** rms-norm and layer-norm. */
import { describe, expect, it } from 'vitest';
import { floats, runOp } from '../../test/run-op.js';

describe('rms-norm', () => {
  it('divides by the root of the mean square', () => {
    // mean square of (3, 4, 0, 5, 5, 5) is 100 / 6; of (1, 1, 1, 1, 1, 1) it is 1
    const x = floats([3, 4, 0, 5, 5, 5, 1, 1, 1, 1, 1, 1], 2, 6);
    const { y } = runOp('rms-norm', { x, weight: floats([1, 1, 1, 2, 2, -2], 6) }, { eps: 0 });
    const unit = Math.sqrt(6) / 10;
    for (const [i, expected] of [3, 4, 0, 10, 10, -10].entries()) expect(y[i]).toBeCloseTo(expected * unit, 6);
    expect(y.slice(6)).toEqual([1, 1, 1, 2, 2, -2]);
  });

  it('adds eps inside the root', () => {
    expect(runOp('rms-norm', { x: floats([0, 0], 2), weight: floats([1, 1], 2) }, { eps: 0.25 })).toEqual({
      y: [0, 0],
    });
    expect(runOp('rms-norm', { x: floats([0.5, 0.5], 2), weight: floats([1, 1], 2) }, { eps: 0.75 })['y']).toEqual([
      0.5, 0.5,
    ]);
  });

  it('does not overflow where f32 squares would', () => {
    expect(runOp('rms-norm', { x: floats([1e30, -1e30], 2), weight: floats([1, 1], 2) }, { eps: 1e-5 })['y']).toEqual([
      1, -1,
    ]);
  });
});

describe('layer-norm', () => {
  it('subtracts the mean and divides by the standard deviation', () => {
    // mean 5, variance 4
    const x = floats([3, 7, 3, 7, 3, 7], 1, 6);
    const weight = floats([1, 1, 2, 2, 3, 3], 6);
    expect(runOp('layer-norm', { x, weight }, { eps: 0 })['y']).toEqual([-1, 1, -2, 2, -3, 3]);
    const bias = floats([1, 1, 1, 1, 1, 1], 6);
    expect(runOp('layer-norm', { x, weight, bias }, { eps: 0 })['y']).toEqual([0, 2, -1, 3, -2, 4]);
  });

  it('adds eps to the variance', () => {
    const x = floats([4, 6], 2); // variance 1
    expect(runOp('layer-norm', { x, weight: floats([1, 1], 2) }, { eps: 3 })['y']).toEqual([-0.5, 0.5]);
  });

  it('keeps the digits of small differences of large values', () => {
    const x = floats([16777216, 16777218], 2);
    expect(runOp('layer-norm', { x, weight: floats([1, 1], 2) }, { eps: 0 })['y']).toEqual([-1, 1]);
  });
});
