import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FloatHistogram } from './float-histogram.js';

describe('FloatHistogram', () => {
  const values = fc.array(fc.float({ noNaN: true, noDefaultInfinity: true }), { minLength: 1, maxLength: 60 });

  test('the requested weight lies above the returned edge, and the count above it is exact', () => {
    fc.assert(
      fc.property(values, fc.double({ min: 0, max: 1, noNaN: true }), (list, share) => {
        const floats = Float32Array.from(list);
        const weights = floats.map((x) => Math.abs(x) / 2 ** 100 + 1);
        const histogram = new FloatHistogram();
        histogram.add(floats, weights);
        const wanted = share * histogram.totalWeight;
        const edge = histogram.edgeOfWeight(wanted);
        const above = (least: number): number =>
          weights.reduce((sum, w, i) => sum + ((floats[i] as number) >= least ? w : 0), 0);
        // sums of a few floats in two orders
        expect(above(edge)).toBeGreaterThanOrEqual(wanted * (1 - 1e-12));
        expect(histogram.above(edge).count).toBe(floats.filter((x) => x >= edge).length);
      }),
      { examples: [[[-0, 0], 5e-324]] },
    );
  });

  test('bins are 1/64 of a power of two wide', () => {
    for (const x of [1, 1.01, -1.01, 1e-20, -3e30, 0, -0]) {
      const histogram = new FloatHistogram();
      histogram.add(Float32Array.of(x), [1]);
      const edge = histogram.edgeOfWeight(1);
      expect(edge).toBeLessThanOrEqual(Math.fround(x));
      expect(Math.abs(edge - x)).toBeLessThanOrEqual(Math.abs(x) / 64 + 1e-38);
    }
  });
});
