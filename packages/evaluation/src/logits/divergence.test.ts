import { ShapeError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { pearson } from './correlation.js';
import { compareRows, DivergenceCollector, divergenceClass } from './divergence.js';
import { estimate, percentile } from './statistics.js';

const row = (...probabilities: number[]): Float32Array => Float32Array.from(probabilities, Math.log);

describe('statistics by hand', () => {
  it('mean and standard error', () => {
    // variance of 1, 2, 3 is 2/3; sqrt(2/3 / 2) = 0.5774
    expect(estimate([1, 2, 3])).toEqual({ mean: 2, error: Math.sqrt(1 / 3) });
    expect(estimate([5])).toEqual({ mean: 5, error: 0 });
    expect(estimate([])).toEqual({ mean: 0, error: 0 });
  });

  it('percentiles lie between the order statistics', () => {
    expect([0, 0.5, 0.9, 1].map((p) => percentile([0, 10, 20, 30, 40], p))).toEqual([0, 20, 36, 40]);
    expect(percentile([], 0.5)).toBe(0);
  });

  it('correlation', () => {
    expect(pearson([1, 2, 3], [2, 4, 6])).toBeCloseTo(1, 12);
    expect(pearson([1, 2, 3], [3, 2, 1])).toBeCloseTo(-1, 12);
    // deviations (-1, 0, 1) and (-1, 1, 0): 1 / sqrt(2 * 2)
    expect(pearson([1, 2, 3], [1, 3, 2])).toBeCloseTo(0.5, 12);
    expect([pearson([1, 1], [1, 1]), pearson([1, 1], [1, 2])]).toEqual([1, 0]);
  });
});

it('divergence by hand: of one position', () => {
  // 0.5 ln(0.5/0.25) + 0.25 ln(0.25/0.5) + 0.25 ln 1 = 0.25 ln 2
  const { divergence, deltaP, baseLoss, testedLoss, hasSameTop } = compareRows(
    row(0.5, 0.25, 0.25),
    row(0.25, 0.5, 0.25),
    1,
  );
  expect(divergence).toBeCloseTo(0.25 * Math.LN2, 6);
  expect(deltaP).toBeCloseTo(0.25, 6);
  expect(baseLoss).toBeCloseTo(Math.log(4), 6);
  expect(testedLoss).toBeCloseTo(Math.LN2, 6);
  expect(hasSameTop).toBe(false);
  expect(() => compareRows(row(1), row(0.5, 0.5), 0)).toThrow(ShapeError);
});

it('divergence by hand: infinite where only the tested run gives zero probability, 0 where the base does', () => {
  expect(compareRows(row(0.5, 0.5), row(1, 0), 0).divergence).toBe(Infinity);
  expect(compareRows(row(1, 0), row(0.5, 0.5), 0).divergence).toBeCloseTo(Math.LN2, 6);
});

it('divergence by hand: of a text', () => {
  const collector = new DivergenceCollector();
  collector.add(0, row(0.5, 0.5), row(0.5, 0.5), 0);
  collector.add(1, row(0.5, 0.5), row(0.25, 0.75), 0);
  collector.add(2, row(0.25, 0.75), row(0.25, 0.75), 1);
  collector.add(3, row(0.75, 0.25), row(0.75, 0.25), 0);
  const report = collector.report(2);
  const kl = 0.5 * Math.log(4 / 3); // 0.5 ln 2 + 0.5 ln (2/3)
  expect(report.numTokens).toBe(4);
  expect(report.divergence.mean).toBeCloseTo(kl / 4, 6);
  // one of four is kl: variance kl^2 3/16, over 3 is kl^2 / 16
  expect(report.divergence.error).toBeCloseTo(kl / 4, 6);
  expect(report.divergence.max).toBeCloseTo(kl, 6);
  expect(report.divergence.percentiles['0.9']).toBeCloseTo(0.7 * kl, 6); // rank 2.7 of 0, 0, 0, kl
  expect(report.divergence.percentiles['0.5']).toBe(0);
  // p(next) of the base 1/2 1/2 3/4 3/4, of the tested run 1/2 1/4 3/4 3/4
  expect(report.basePpl.mean).toBeCloseTo((64 / 9) ** 0.25, 5);
  expect(report.testedPpl.mean).toBeCloseTo((128 / 9) ** 0.25, 5);
  expect(report.pplRatio.mean).toBeCloseTo(2 ** 0.25, 5);
  expect(report.pplDifference.mean).toBeCloseTo((128 / 9) ** 0.25 - (64 / 9) ** 0.25, 5);
  // losses differ by (0, ln 2, 0, 0): standard error ln 2 / 4
  expect(report.pplRatio.error).toBeCloseTo((2 ** 0.25 * Math.LN2) / 4, 5);
  expect(report.deltaP.mean).toBeCloseTo(-1 / 16, 6);
  expect(report.deltaP.rms).toBeCloseTo(1 / 8, 6);
  expect(report.sameTop.mean).toBe(0.75);
  expect(report.buckets.map(({ begin, end, count }) => [begin, end, count])).toEqual([
    [0, 2, 2],
    [2, 4, 2],
  ]);
  expect(report.buckets[0].meanDivergence).toBeCloseTo(kl / 2, 6);
  expect(report.buckets[1].meanDivergence).toBe(0);
});

it('divergence by hand: classes', () => {
  expect([0, 0.0014, 0.005, 0.03, 0.031].map(divergenceClass)).toEqual([
    'lossless',
    'lossless',
    'Q6_K',
    'Q4_K_M',
    'below Q4_K_M',
  ]);
});

it('every position belongs to a bucket, also with an uneven split', () => {
  const collector = new DivergenceCollector();
  for (const position of [4, 5, 6, 7, 8]) collector.add(position, row(0.5, 0.5), row(0.5, 0.5), 0);
  expect(collector.report(2).buckets.map(({ begin, end, count }) => [begin, end, count])).toEqual([
    [4, 7, 3],
    [7, 10, 2],
  ]);
});
