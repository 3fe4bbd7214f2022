import type { KernelCase } from '../kernel-case.js';
import { close, gaussian, lengths, numbersOf, gaussianWith, specials } from '../values.js';

/** One rounding of the sum. */
export const addCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [1, 3].map((numTokens) => ({
    op: 'add',
    name: `${numTokens} x ${length}`,
    dtypes: {},
    attributes: {},
    create(rng, { unit, tiny }) {
      const shape = [numTokens, length];
      const a = gaussianWith(rng, shape, specials, 0);
      const b = gaussian(rng, shape, 10, 0);
      const [x, y] = [numbersOf(a), numbersOf(b)];
      const expected = close(x.length, (i) => [x[i] + y[i], unit * Math.abs(x[i] + y[i]) + tiny]);
      return { inputs: { a, b }, expected: { y: expected } };
    },
  })),
);
