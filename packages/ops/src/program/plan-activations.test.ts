import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { alignUp, arenaAlignment, planActivations, type Lifetime } from './plan-activations.js';

const lifetimes = fc.array(
  fc
    .record({ size: fc.integer({ min: 1, max: 40 }), first: fc.nat(30), length: fc.nat(12) })
    .map(({ size, first, length }) => ({ sizeBytes: size * 64, firstRecord: first, lastRecord: first + length })),
  { maxLength: 40 },
);

/** The maximum number of live bytes in one record, a lower bound of every plan. */
function lowerBound(plan: readonly Lifetime[]): number {
  let most = 0;
  for (let record = 0; record <= 42; record++) {
    const alive = plan.filter(({ firstRecord, lastRecord }) => firstRecord <= record && record <= lastRecord);
    most = Math.max(
      most,
      alive.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    );
  }
  return most;
}

describe('planActivations', () => {
  it('separates tensors with overlapping lifetimes, and reports the exact end', () => {
    fc.assert(
      fc.property(lifetimes, (plan) => {
        const { offsets, sizeBytes } = planActivations(plan);
        for (let a = 0; a < plan.length; a++) {
          expect(offsets[a] % arenaAlignment).toBe(0);
          for (let b = 0; b < a; b++) {
            if (plan[a].firstRecord > plan[b].lastRecord || plan[b].firstRecord > plan[a].lastRecord) continue;
            const apart = offsets[a] + plan[a].sizeBytes <= offsets[b] || offsets[b] + plan[b].sizeBytes <= offsets[a];
            expect(apart, `tensors ${b} and ${a}`).toBe(true);
          }
        }
        expect(sizeBytes).toBe(Math.max(0, ...plan.map((tensor, i) => offsets[i] + tensor.sizeBytes)));
        expect(sizeBytes).toBeGreaterThanOrEqual(lowerBound(plan));
        expect(planActivations(plan)).toEqual({ offsets, sizeBytes });
      }),
      { seed: 7, numRuns: 400 },
    );
  });

  it('reaches the lower bound where lifetimes are nested or follow each other', () => {
    const chain = Array.from({ length: 20 }, (_, i) => ({ sizeBytes: 640, firstRecord: i, lastRecord: i + 1 }));
    expect(planActivations(chain).sizeBytes).toBe(1280);
    const nested = Array.from({ length: 5 }, (_, i) => ({
      sizeBytes: 64 * (i + 1),
      firstRecord: i,
      lastRecord: 20 - i,
    }));
    expect(planActivations(nested).sizeBytes).toBe(64 * 15);
  });

  it('reuses the hole of a dead tensor', () => {
    const plan = planActivations([
      { sizeBytes: 256, firstRecord: 0, lastRecord: 1 },
      { sizeBytes: 192, firstRecord: 0, lastRecord: 9 },
      { sizeBytes: 128, firstRecord: 2, lastRecord: 9 },
      { sizeBytes: 128, firstRecord: 2, lastRecord: 9 },
    ]);
    expect(plan).toEqual({ offsets: [0, 256, 0, 128], sizeBytes: 448 });
  });

  it('plans 0 bytes for no tensors', () => {
    expect(planActivations([])).toEqual({ offsets: [], sizeBytes: 0 });
  });

  it('starts every tensor at a multiple of the alignment', () => {
    const { offsets, sizeBytes } = planActivations([
      { sizeBytes: 100, firstRecord: 0, lastRecord: 0 },
      { sizeBytes: 1, firstRecord: 0, lastRecord: 0 },
    ]);
    expect(offsets).toEqual([0, 128]);
    expect(sizeBytes).toBe(192);
    expect(alignUp(129, 64)).toBe(192);
  });
});
