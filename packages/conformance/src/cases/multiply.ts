import type { KernelCase } from '../kernel-case.js';
import { close, lengths, numbersOf, gaussianWith, specials } from '../values.js';

/** One rounding of the product. */
export const multiplyCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [1, 3].map((numTokens) => ({
    op: 'multiply',
    name: `${numTokens} x ${length}`,
    dtypes: {},
    attributes: {},
    create(rng, { unit, tiny }) {
      const shape = [numTokens, length];
      const a = gaussianWith(rng, shape, specials, 0);
      const b = gaussianWith(rng, shape, [1, -2, 0, 1e-30], 0);
      const [x, y] = [numbersOf(a), numbersOf(b)];
      // a denormal factor may be off by `tiny` before it is multiplied
      const expected = close(x.length, (i) => {
        const product = x[i] * y[i];
        return [product, unit * Math.abs(product) + tiny * (1 + Math.abs(y[i]))];
      });
      return { inputs: { a, b }, expected: { y: expected } };
    },
  })),
);
