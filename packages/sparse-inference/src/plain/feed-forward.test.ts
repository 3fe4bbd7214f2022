import type { ActivationKind } from '@winnow/ops';
import { ShapeError } from '@winnow/tensor';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { goldenBlocks, randomBlock, randomRow } from '../../test/blocks.js';
import { columnNorms, feedForward, neuronContributions } from './feed-forward.js';

/** Sums in f64, one rounding to f32 of the result: half an ulp, and the goldens are rounded to f32 themselves. */
const closeTo = (actual: Float32Array, expected: readonly number[]): void => {
  expect(actual.length).toBe(expected.length);
  const size = Math.max(...expected.map(Math.abs), 1);
  for (const [i, x] of expected.entries())
    expect(Math.abs((actual[i] as number) - x)).toBeLessThanOrEqual(size * 2 ** -22);
};

describe.each(goldenBlocks())('$name', ({ weights, golden, rows }) => {
  test('all neurons, contributions, and the active neurons as numpy has them', () => {
    const norms = columnNorms(weights.down, weights.hiddenDim, weights.ffnDim);
    rows.forEach((x, row) => {
      const part = (values: readonly number[], width: number): readonly number[] =>
        values.slice(row * width, (row + 1) * width);
      closeTo(feedForward(weights, x), part(golden.dense, weights.hiddenDim));
      closeTo(neuronContributions(weights, x, norms), part(golden.contributions, weights.ffnDim));
      closeTo(feedForward(weights, x, golden.active[row]), part(golden.sparse, weights.hiddenDim));
    });
  });
});

test('the active neurons and the others add up to all of them', () => {
  fc.assert(
    fc.property(
      fc.constantFrom<ActivationKind>('relu', 'relu2', 'silu', 'gelu-tanh', 'gelu-erf'),
      fc.boolean(),
      fc.integer({ min: 1, max: 9 }),
      fc.integer({ min: 1, max: 33 }),
      fc.integer(),
      (activation, isGated, hiddenDim, ffnDim, seed) => {
        const weights = randomBlock({ activation, isGated, hiddenDim, ffnDim }, seed);
        const x = randomRow(hiddenDim, seed + 1);
        const ids = Array.from({ length: ffnDim }, (_, id) => id);
        const isActive = (id: number): boolean => (id * 7 + seed) % 3 === 0;
        const all = feedForward(weights, x);
        const [some, rest] = [ids.filter(isActive), ids.filter((id) => !isActive(id))].map((part) =>
          feedForward(weights, x, part),
        );
        const none = feedForward(weights, x, []);
        expect(feedForward(weights, x, ids)).toEqual(all);
        expect(none).toEqual(weights.downBias ?? new Float32Array(hiddenDim));
        // each result is rounded once: errors of half an ulp of each
        const size = Math.max(1, ...[all, some, rest, none].map((y) => Math.max(...y.map(Math.abs))));
        all.forEach((y, e) => {
          const sum = (some?.[e] as number) + (rest?.[e] as number) - (none[e] as number);
          expect(Math.abs(sum - y)).toBeLessThanOrEqual(4 * size * 2 ** -24);
        });
      },
    ),
    { numRuns: 100 },
  );
});

test('sizes that do not fit are refused', () => {
  const weights = randomBlock({ activation: 'relu', isGated: true, hiddenDim: 4, ffnDim: 6 }, 1);
  expect(() => feedForward(weights, new Float32Array(3))).toThrow(ShapeError);
  expect(() => feedForward({ ...weights, down: new Float32Array(5) }, new Float32Array(4))).toThrow(/elements of down/);
});
