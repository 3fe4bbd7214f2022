/** More than 10,000 random commands against the model; bookkeeping and contents are checked after each. */
import { describe, expect, it } from 'vitest';
import { CacheModel, type ModelOptions } from '../../test/cache-model.js';

const neuron = [
  { dtype: 'f16', valuesPerItem: 64 },
  { dtype: 'f16', valuesPerItem: 64 },
  { dtype: 'f16', valuesPerItem: 64 },
] as const;
const small = { numItems: 60, slots: 17, numHot: 5, warmSlots: 12, numWarm: 8, shapes: neuron };

const cases: readonly (ModelOptions & { readonly name: string; readonly numRuns: number })[] = [
  { name: 'rows of three matrices', numRuns: 6, ...small },
  { name: 'rows of three matrices that fail now and then', numRuns: 6, ...small, failureRate: 0.1 },
  { name: 'bundles', numRuns: 4, ...small, isBundle: true, failureRate: 0.05 },
  { name: 'memory out of reach', numRuns: 6, ...small, hasView: false },
  { name: 'memory out of reach that fails now and then', numRuns: 6, ...small, hasView: false, failureRate: 0.1 },
  { name: 'warm tier without requantization', numRuns: 3, ...small, warmEncoding: 'same' },
  { name: 'no warm tier', numRuns: 3, ...small, warmSlots: 0, numWarm: 0, numHot: 0 },
  { name: 'a 4-bit copy', numRuns: 3, ...small, coldEncoding: 'q4_0', warmSlots: 8 },
  { name: 'a 4-bit copy, memory out of reach', numRuns: 3, ...small, coldEncoding: 'q4_0', hasView: false },
  {
    name: 'mixed dtypes and a bias',
    numRuns: 4,
    ...small,
    shapes: [
      { dtype: 'q4_0', valuesPerItem: 32 },
      { dtype: 'f32', valuesPerItem: 1 },
      { dtype: 'bf16', valuesPerItem: 96 },
      { dtype: 'q8_0', valuesPerItem: 32 },
    ],
    failureRate: 0.05,
  },
  { name: 'few slots', numRuns: 4, ...small, slots: 4, numHot: 1, warmSlots: 3, numWarm: 0, failureRate: 0.05 },
  { name: 'room for all', numRuns: 2, ...small, slots: 60, failureRate: 0.05 },
  { name: 'reads of one item, one at a time', numRuns: 3, ...small, readBytes: 1, maxReads: 1, failureRate: 0.05 },
];

const commandsPerRun = 220;
const counted = ['hits', 'evictions', 'warmHits', 'prefetchHits'] as const;

describe('random commands', () => {
  it('are more than 10,000', () => {
    expect(cases.reduce((sum, { numRuns }) => sum + numRuns * commandsPerRun, 0)).toBeGreaterThan(10_000);
  });

  for (const { name, numRuns, ...options } of cases) {
    it(`${name}: slots keep the bytes of the source while they are held`, async () => {
      const counts = { failed: 0, aborted: 0, refused: 0 };
      const totals = { hits: 0, evictions: 0, warmHits: 0, prefetchHits: 0 };
      for (let seed = 1; seed <= numRuns; seed++) {
        const model = await CacheModel.create(options, seed);
        for (let command = 0; command < commandsPerRun; command++) await model.runCommand();
        const { cache } = model;
        counts.failed += model.counts.failed;
        counts.aborted += model.counts.aborted;
        counts.refused += model.counts.refused;
        const statistics = cache.statistics();
        expect(statistics.requests).toBe(statistics.hits + statistics.misses);
        expect(statistics.misses).toBe(statistics.warmHits + statistics.coldReads);
        expect(statistics.usefulBytesRead).toBeLessThanOrEqual(statistics.bytesRead);
        for (const name of counted) totals[name] += statistics[name];
        const { source } = model.layers[0];
        expect(source.peakRunning).toBeLessThanOrEqual(options.maxReads ?? 3);
        await cache.close();
        expect(source.numRunning).toBe(0);
      }
      // the rare cases occurred
      expect(totals.hits).toBeGreaterThan(0);
      expect(totals.prefetchHits).toBeGreaterThan(0);
      if (options.slots < options.numItems) expect(totals.evictions).toBeGreaterThan(0);
      if (options.warmSlots > 3) expect(totals.warmHits).toBeGreaterThan(0);
      expect(counts.failed > 0).toBe(options.failureRate !== undefined);
      expect(counts.aborted > 0 || options.coldEncoding === 'q4_0').toBe(true);
      expect(counts.refused > 0).toBe(options.slots < options.numItems);
    });
  }
});
