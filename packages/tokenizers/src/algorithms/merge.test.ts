import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Merger } from './merge.js';
import type { MergeRules } from './merge.js';

/** Merge rules over symbols 0 to 3: pairs with a rank merge into another symbol. */
function rulesOf(ranks: readonly number[], results: readonly number[]): MergeRules {
  return {
    rank: (left, right) => ranks[left * 4 + right]!,
    merged: (left, right) => results[left * 4 + right]!,
  };
}

function mergeSlowly(symbols: readonly number[], rules: MergeRules): number[] {
  const out = [...symbols];
  for (;;) {
    let best = -1;
    for (let index = 0; index + 1 < out.length; index++) {
      const rank = rules.rank(out[index]!, out[index + 1]!);
      if (rank >= 0 && (best < 0 || rank < rules.rank(out[best]!, out[best + 1]!))) best = index;
    }
    if (best < 0) return out;
    out.splice(best, 2, rules.merged(out[best]!, out[best + 1]!));
  }
}

describe('Merger', () => {
  it.each([
    ['scan', { maxLength: 23 }],
    ['heap', { minLength: 24, maxLength: 80 }],
  ])('merges like the naive algorithm, by %s', (_path, lengths) => {
    const symbol = fc.integer({ min: 0, max: 3 });
    const pairs = fc.array(fc.integer({ min: -1, max: 5 }), { minLength: 16, maxLength: 16 });
    const results = fc.array(symbol, { minLength: 16, maxLength: 16 });
    fc.assert(
      fc.property(fc.array(symbol, lengths), pairs, results, (symbols, ranks, merged) => {
        const rules = rulesOf(ranks, merged);
        const work = Int32Array.from(symbols);
        const live = new Merger(rules).merge(work, work.length);
        expect([...work.subarray(0, live)]).toEqual(mergeSlowly(symbols, rules));
      }),
      { numRuns: 500 },
    );
  });

  it.each([1 << 10, 1 << 14, 1 << 18])('queues at most 3n candidates for n = %i symbols', (count) => {
    // Every pair merges: the worst case for the number of merges and candidates.
    const merger = new Merger({
      rank: (left, right) => (left + right) % 7,
      merged: (left, right) => (left + right) % 1000,
    });
    const work = Int32Array.from({ length: count }, (_, index) => index % 1000);
    expect(merger.merge(work, count)).toBe(1);
    expect(merger.numMerges).toBe(count - 1);
    expect(merger.numCandidates).toBeLessThanOrEqual(3 * count);
  });
});
