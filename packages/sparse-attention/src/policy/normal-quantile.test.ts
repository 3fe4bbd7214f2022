import { expect, it } from 'vitest';
import { twoSidedQuantile } from './normal-quantile.js';

it('gives the quantiles of the tables', () => {
  expect(twoSidedQuantile(0.3)).toBeCloseTo(1.0364333894937898, 12);
  expect(twoSidedQuantile(0.1)).toBeCloseTo(1.6448536269514722, 12);
  expect(twoSidedQuantile(0.05)).toBeCloseTo(1.959963984540054, 12);
  expect(twoSidedQuantile(0.001)).toBeCloseTo(3.2905267314918945, 12);
  expect(twoSidedQuantile(2e-12)).toBeCloseTo(7.03448382546687, 6);
});
