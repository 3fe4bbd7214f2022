import { opSpec } from '@winnow/ops';
import type { KernelCase } from '../kernel-case.js';
import { close, finiteSpecials, ints, lengths, numbersOf, gaussianWith } from '../values.js';

/** Runs of rows in any order, one of them empty, some rows in none and some in two. */
const runs: readonly (readonly [start: number, length: number])[] = [
  [3, 5],
  [0, 1],
  [7, 0],
  [2, 17],
  [19, 2],
];

const kinds = opSpec('pool-rows').attributes['kind']?.values ?? [];

/**
 * Of n rows with factors f: each product has a rounding, the sum has n, and two more make the mean. A denormal result of
 * each operation may be lost. `first`, `last` and `max` are exact.
 */
export const poolRowsCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  kinds.map((kind) => ({
    op: 'pool-rows',
    name: `${kind}, 5 runs of 21 x ${length}`,
    dtypes: {},
    attributes: { kind },
    create(rng, { unit, tiny }) {
      const x = gaussianWith(rng, [21, length], finiteSpecials);
      const xs = numbersOf(x);
      const y = close(runs.length * length, (index) => {
        const [start, numRows] = runs[Math.floor(index / length)];
        const column = index % length;
        const values = Array.from({ length: numRows }, (_, i) => xs[(start + i) * length + column]);
        if (numRows === 0) return [0, 0];
        if (kind === 'first' || kind === 'last') return [values[kind === 'first' ? 0 : numRows - 1], 0];
        if (kind === 'max') return [values.reduce((a, b) => Math.max(a, b)), 0];
        const factors = values.map((_, i) => (kind === 'weighted-mean' ? i + 1 : 1));
        const total = kind === 'mean-sqrt' ? Math.sqrt(numRows) : factors.reduce((a, b) => a + b);
        const sum = values.reduce((s, value, i) => s + factors[i] * value, 0);
        const norm = values.reduce((s, value, i) => s + factors[i] * Math.abs(value), 0);
        return [sum / total, ((numRows + 3) * unit * norm) / total + (2 * numRows + 2) * tiny];
      });
      const starts = runs.map(([start]) => start);
      const counts = runs.map(([, count]) => count);
      return {
        inputs: { x, starts: ints([runs.length], starts, 0), lengths: ints([runs.length], counts, 0) },
        expected: { y },
      };
    },
  })),
);
