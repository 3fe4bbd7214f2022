import type { KernelCase } from '../kernel-case.js';
import { close, lengths, numbersOf, gaussianWith, specials } from '../values.js';

/** One rounding of the product. */
export const scaleCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [0.1, -3].map((factor) => ({
    op: 'scale',
    name: `3 x ${length}, times ${factor}`,
    dtypes: {},
    attributes: { factor },
    create(rng, { unit, tiny }) {
      const x = gaussianWith(rng, [3, length], specials, 0);
      const xs = numbersOf(x);
      const y = close(xs.length, (i) => {
        const product = xs[i] * Math.fround(factor);
        return [product, unit * Math.abs(product) + tiny * (1 + Math.abs(factor))];
      });
      return { inputs: { x }, expected: { y } };
    },
  })),
);
