import type { KernelCase } from '../kernel-case.js';
import { close, floats, gaussian, lengths, numbersOf } from '../values.js';

/**
 * A reciprocal and a product, or a quotient; zeros without visible keys. The exp of a sink, whose argument is rounded, and the
 * sum change the denominator.
 */
export const attentionFinishCases: readonly KernelCase[] = lengths
  .filter((dim) => dim < 256)
  .flatMap((dim): KernelCase[] =>
    [0, 1, 3, 4].map((numTokens) => ({
      op: 'attention-finish',
      name: `${numTokens} x 3 x ${dim}${numTokens === 4 ? ', sinks' : ''}`,
      dtypes: {},
      attributes: {},
      create(rng, { unit, tiny, elementary }) {
        const numRows = numTokens * 3;
        const sums = Array.from({ length: numRows }, (_, row) => (row % 4 === 2 ? 0 : 1 + rng.nextFloat() * 100));
        const o = gaussian(rng, [1, numTokens, 3, dim], 10, 1);
        const os = numbersOf(o);
        const l = floats([1, numTokens, 3], sums, 1);
        const ls = numbersOf(l);
        const maxima = sums.map((sum) => (sum === 0 ? -Infinity : rng.nextGaussian() * 4));
        const m = floats([1, numTokens, 3], maxima, 1);
        const sinkLogits = floats([3], [-6, 2, 60]);
        const hasSinks = numTokens === 4;
        const [ms, sinks] = [numbersOf(m), numbersOf(sinkLogits)];
        const y = close(os.length, (i) => {
          const row = Math.floor(i / dim);
          const distance = sinks[row % 3] - ms[row];
          const sink = hasSinks ? Math.exp(distance) : 0;
          const sum = ls[row] + sink;
          const value = sum === 0 || ls[row] === 0 ? 0 : os[i] / sum;
          const share =
            sink === 0 || ls[row] === 0 ? 0 : (sink / sum) * (elementary + 2 * unit * Math.abs(distance)) + unit;
          return [value, (3 * unit + share) * Math.abs(value) + (value === 0 ? 0 : tiny)];
        });
        return { inputs: { l, o, ...(hasSinks ? { m, sinkLogits } : {}) }, expected: { y } };
      },
    })),
  );
