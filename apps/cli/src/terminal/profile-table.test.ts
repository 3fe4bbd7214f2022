import { expect, test } from 'vitest';
import { profileByOp, profileTable } from './profile-table.js';

const peaks = { numThreads: 2, bytesPerSecond: 4e9, f32OpsPerSecond: 8e9, int8OpsPerSecond: 16e9 };
const records = [
  { op: 'matmul', layer: 0, numRuns: 2, timeMs: 4, flops: 32e6, bytes: 4e6, isInt8: true },
  { op: 'matmul', layer: 1, numRuns: 2, timeMs: 4, flops: 32e6, bytes: 4e6, isInt8: true },
  { op: 'attention', layer: 0, numRuns: 2, timeMs: 2, flops: 8e6, bytes: 2e6 },
  { op: 'add', layer: 0, numRuns: 2, timeMs: 10, flops: 1e6, bytes: 4e6 },
  { op: 'rope', layer: 0, numRuns: 0, timeMs: 0, flops: 0, bytes: 0 },
];

test('shares of peak: the larger of bandwidth and arithmetic, int8 relative to its own peak', () => {
  expect(profileByOp(records, peaks)).toMatchObject([
    { op: 'add', share: 0.5, peakShare: 0.1, boundBy: 'memory' },
    { op: 'matmul', numRuns: 4, timeMs: 8, gflops: 8, gigabytesPerSecond: 1, peakShare: 0.5, boundBy: 'int8' },
    { op: 'attention', peakShare: 0.5, boundBy: 'f32' },
    { op: 'rope', share: 0, gflops: null, gigabytesPerSecond: null, peakShare: null, boundBy: null },
  ]);
  expect(profileByOp(records, undefined).every(({ peakShare }) => peakShare === null)).toBe(true);
});

test('the table ends with the peaks', () => {
  expect(profileTable(records, peaks).split('\n')).toEqual([
    expect.stringMatching(/^op +runs +ms +share +GFLOP\/s +GB\/s +of peak$/),
    expect.stringMatching(/^add +2 +10\.0 +50\.0% +0\.10 +0\.40 +10\.0% memory$/),
    expect.stringMatching(/^matmul +4 +8\.0 +40\.0% +8\.00 +1\.00 +50\.0% int8$/),
    expect.stringMatching(/^attention +2 +2\.0 +10\.0% +4\.00 +1\.00 +50\.0% f32$/),
    expect.stringMatching(/^rope +0 +0\.0 +0\.0% +- +- +-$/),
    'peaks of this machine, 2 threads: memory 4.0 GB/s, f32 8.0 GFLOP/s, int8 16.0 GOP/s',
    '',
  ]);
});
