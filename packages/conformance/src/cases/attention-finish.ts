import type { KernelCase } from '../kernel-case.js';
import { close, floats, gaussian, lengths, numbersOf } from '../values.js';

/** A reciprocal and a product, or a quotient; zeros without visible keys. */
export const attentionFinishCases: readonly KernelCase[] = lengths
  .filter((dim) => dim < 256)
  .flatMap((dim): KernelCase[] =>
    [0, 1, 3].map((numTokens) => ({
      op: 'attention-finish',
      name: `${numTokens} x 3 x ${dim}`,
      dtypes: {},
      attributes: {},
      create(rng, { unit, tiny }) {
        const numRows = numTokens * 3;
        const sums = Array.from({ length: numRows }, (_, row) => (row % 4 === 2 ? 0 : 1 + rng.nextFloat() * 100));
        const o = gaussian(rng, [1, numTokens, 3, dim], 10, 1);
        const os = numbersOf(o);
        const l = floats([1, numTokens, 3], sums, 1);
        const ls = numbersOf(l);
        const y = close(os.length, (i) => {
          const sum = ls[Math.floor(i / dim)];
          const value = sum === 0 ? 0 : os[i] / sum;
          return [value, 3 * unit * Math.abs(value) + (sum === 0 ? 0 : tiny)];
        });
        return { inputs: { l, o }, expected: { y } };
      },
    })),
  );
