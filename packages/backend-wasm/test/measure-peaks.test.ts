/** The machine probes return finite rates; their values are not tested. */
import { ArgumentError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { createHost } from '../src/host/host.node.js';
import { measurePeaks } from '../src/index.js';

const small = { memoryBytes: 2 ** 21, probeMs: 1 };

test.each([1, 2, 3])('peaks of %i threads are finite rates, and the workers end', async (numThreads) => {
  const host = createHost();
  let numAlive = 0;
  const counting: typeof host = {
    ...host,
    startWorker(start, events) {
      const worker = host.startWorker(start, events);
      numAlive++;
      return {
        setBusy: (isBusy) => worker.setBusy(isBusy),
        terminate: () => worker.terminate().then(() => void numAlive--),
      };
    },
  };
  const peaks = await measurePeaks({ ...small, numThreads, host: counting });
  expect(peaks).toEqual({
    variant: 'relaxed-simd',
    numThreads,
    bytesPerSecond: expect.any(Number),
    f32OpsPerSecond: expect.any(Number),
    int8OpsPerSecond: expect.any(Number),
  });
  for (const rate of [peaks.bytesPerSecond, peaks.f32OpsPerSecond, peaks.int8OpsPerSecond]) {
    expect(rate).toBeGreaterThan(0);
    expect(Number.isFinite(rate)).toBe(true);
  }
  expect(numAlive).toBe(0);
});

test('invalid options are rejected', async () => {
  await expect(measurePeaks({ ...small, numThreads: 0 })).rejects.toThrow(ArgumentError);
  await expect(measurePeaks({ memoryBytes: 100 })).rejects.toThrow(ArgumentError);
  await expect(measurePeaks({ ...small, probeMs: Infinity })).rejects.toThrow(ArgumentError);
});
