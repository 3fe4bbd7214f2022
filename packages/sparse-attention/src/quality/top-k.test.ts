import fc from 'fast-check';
import { expect, it } from 'vitest';
import { largestIndices } from './top-k.js';

it('selects the k largest, ties to the lower index, NaN last, ascending', () => {
  const value = fc.oneof(fc.integer({ min: -3, max: 3 }), fc.double(), fc.constantFrom(Infinity, -Infinity, NaN));
  fc.assert(
    fc.property(fc.array(value, { maxLength: 60 }), fc.nat(70), (values, k) => {
      const rank = (x: number): number => (Number.isNaN(x) ? -Infinity : x);
      const expected = values
        .map((x, i) => ({ x: rank(x), i }))
        .toSorted((a, b) => (a.x === b.x ? a.i - b.i : a.x > b.x ? -1 : 1))
        .slice(0, k)
        .map(({ i }) => i)
        .toSorted((a, b) => a - b);
      const out = new Int32Array(Math.min(k, values.length));
      expect(largestIndices(Float64Array.from(values), k, out)).toBe(expected.length);
      expect([...out]).toEqual(expected);
    }),
    { numRuns: 3000 },
  );
});
