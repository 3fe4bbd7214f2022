import fc from 'fast-check';
import { expect, test } from 'vitest';
import { selectTop } from './top-selection.js';

test('the first k are the k largest in order, and every index remains', () => {
  const logits = fc.array(fc.float({ noNaN: true, noDefaultInfinity: true }), { minLength: 1, maxLength: 60 });
  fc.assert(
    fc.property(logits, fc.nat(70), (values, k) => {
      const ids = Int32Array.from(values.keys());
      const sorted = Float32Array.from(values);
      selectTop(ids, sorted, values.length, k);
      const expected = [...values.keys()].sort((a, b) => values[b]! - values[a]! || a - b);
      expect([...ids].slice(0, k)).toEqual(expected.slice(0, k));
      expect([...ids].sort((a, b) => a - b)).toEqual([...values.keys()]);
      ids.forEach((id, rank) => expect(sorted[rank]).toBe(Math.fround(values[id]!)));
    }),
  );
});
