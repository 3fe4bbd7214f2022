import { parsePolicy, type VerifiedTopKPolicy } from '@winnow/sparse-attention';
import { expect, it } from 'vitest';
import { measureCoverage } from './coverage.js';
import { syntheticCaptures } from './synthetic.js';

it('the error stays below epsilon with the promised probability, at a part of the keys', async () => {
  const policy = parsePolicy('verified-topk:epsilon=0.3,delta=0.1,page=8,window=16,sample=24') as VerifiedTopKPolicy;
  let [numRows, numOutside, sumOfDensities] = [0, 0, 0];
  for (const capture of syntheticCaptures(448, 1)) {
    const report = await measureCoverage(policy, capture, 416);
    expect(report.numRows).toBe(32 * 2);
    expect(report.promise!.quantile).toBeGreaterThanOrEqual(report.meanError / 2);
    numRows += report.numRows;
    numOutside += report.promise!.numOutside;
    sumOfDensities += report.density;
  }
  // the number outside is binomial: five standard deviations above the promised mean
  expect(numOutside).toBeLessThan(0.1 * numRows + 5 * Math.sqrt(0.09 * numRows));
  expect(sumOfDensities / 5).toBeLessThan(0.8);
});

it('counts what is outside', async () => {
  const policy = parsePolicy('verified-topk:epsilon=0.9,page=8,window=1,budget=0,sample=2') as VerifiedTopKPolicy;
  const [local] = syntheticCaptures(96, 1);
  const loose = await measureCoverage(policy, local, 64);
  const strict = await measureCoverage({ ...policy, epsilon: 1e-9 }, local, 64);
  expect(loose.promise!.numOutside).toBeGreaterThan(0); // two keys are too few for an estimate of a variance
  expect(loose.density).toBeLessThan(0.5);
  expect(strict).toMatchObject({ promise: { numExact: 64 }, density: 1 });
  expect(strict.meanError).toBeLessThan(1e-5); // f32 outputs
});

it('counts rows of policies without a promise within the same errors', async () => {
  const [local] = syntheticCaptures(96, 1);
  const { numRows, numWithin, promise } = await measureCoverage(parsePolicy('oracle-topk:k=6'), local, 64);
  expect([numRows, promise]).toEqual([64, undefined]);
  expect(numWithin).toEqual(numWithin.toSorted((a, b) => a - b));
  expect(numWithin.at(-1)).toBeGreaterThan(numWithin[0] as number);
});
