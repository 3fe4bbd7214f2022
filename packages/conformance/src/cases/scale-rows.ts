import type { KernelCase } from '../kernel-case.js';
import { close, lengths, numbersOf, gaussianWith, specials } from '../values.js';

/** One rounding of the product. */
export const scaleRowsCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [1, 7].map((numTokens) => ({
    op: 'scale-rows',
    name: `${numTokens} x ${length}`,
    dtypes: {},
    attributes: {},
    create(rng, { unit, tiny }) {
      const x = gaussianWith(rng, [numTokens, length], specials, 0);
      const scales = gaussianWith(rng, [numTokens, 1], [0.25], 0);
      const [xs, factors] = [numbersOf(x), numbersOf(scales)];
      const y = close(xs.length, (i) => {
        const factor = factors[Math.floor(i / length)];
        const product = xs[i] * factor;
        return [product, unit * Math.abs(product) + tiny * (1 + Math.abs(factor))];
      });
      return { inputs: { x, scales }, expected: { y } };
    },
  })),
);
