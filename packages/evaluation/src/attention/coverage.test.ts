import { parsePolicy, type VerifiedTopKPolicy } from '@winnow/sparse-attention';
import { Tensor3 } from '@winnow/tensor';
import { expect, it } from 'vitest';
import { coverageErrors, measureCoverage } from './coverage.js';
import { syntheticCaptures } from './synthetic.js';

it('the error stays below epsilon with the probability of the policy, at a part of the keys', async () => {
  const policy = parsePolicy('verified-topk:epsilon=0.3,delta=0.1,page=8,window=16,sample=24') as VerifiedTopKPolicy;
  let [numRows, sumOutside, sumOfDensities] = [0, 0, 0];
  for (const capture of syntheticCaptures(448, 1)) {
    const report = await measureCoverage(policy, capture, 416);
    expect(report.numRows).toBe(32 * 2);
    const { numOutside, quantile } = report.bound!;
    for (const [index, limit] of [...coverageErrors].entries()) {
      const share = report.numWithin[index]! / report.numRows;
      expect(share >= 0.9, `${report.name}: ${share} of the errors are at most ${limit}`).toBe(quantile <= limit);
    }
    expect(numOutside).toBeGreaterThanOrEqual(report.numRows - report.numWithin.at(-1)!); // errors above 0.5
    numRows += report.numRows;
    sumOutside += numOutside;
    sumOfDensities += report.density;
  }
  // the number outside is binomial: five standard deviations above the promised mean
  expect(sumOutside).toBeLessThan(0.1 * numRows + 5 * Math.sqrt(0.09 * numRows));
  expect(sumOfDensities / 5).toBeLessThan(0.8);
});

it('counts what is outside', async () => {
  const policy = parsePolicy('verified-topk:epsilon=0.9,page=8,window=1,budget=0,sample=2') as VerifiedTopKPolicy;
  const [local] = syntheticCaptures(96, 1);
  const loose = await measureCoverage(policy, local, 64);
  const strict = await measureCoverage({ ...policy, epsilon: 1e-9 }, local, 64);
  expect(loose.bound!.numOutside).toBeGreaterThan(0); // two keys are too few for an estimate of a variance
  expect(loose.density).toBeLessThan(0.5);
  expect(strict).toMatchObject({ bound: { numExact: 64 }, density: 1 });
  expect(strict.meanError).toBeLessThan(1e-5); // f32 outputs
});

it('counts rows within each error, where the errors are known', async () => {
  // equal logits and v_j = j + 1/4: row i is i / 2 + 1/4 of all keys, and i - 13/4 of the last eight
  const [seqLen, begin, dim] = [32, 7, 4];
  const zeros = new Tensor3(new Float32Array(seqLen * dim), seqLen, 1, dim);
  const values = Float32Array.from({ length: seqLen * dim }, (_, i) => Math.floor(i / dim) + 0.25);
  const v = new Tensor3(values, seqLen, 1, dim);
  const capture = { name: 'known', layer: 0, q: zeros, unrotatedQ: zeros, k: zeros, v, scale: 1, rotate: undefined };
  const report = await measureCoverage(parsePolicy('streaming:sinks=0,window=8'), capture, begin);
  const errors = Array.from({ length: seqLen - begin }, (_, row) => (2 * row) / (2 * (row + begin) + 1));
  const numWithin = coverageErrors.map((limit) => errors.filter((error) => error <= limit).length);
  expect(numWithin).toEqual([1, 1, 2, 8]);
  expect(report).toMatchObject({ numRows: 25, numWithin, density: (25 * 8) / 500 });
  expect(report.meanError).toBeCloseTo(errors.reduce((sum, error) => sum + error, 0) / 25, 5); // f32 outputs
  expect(report.bound).toBeUndefined();
});
