import type { KernelCase } from '../kernel-case.js';
import { close, gaussian, ints, lengths, numbersOf } from '../values.js';

/** One sum. */
export const expertBiasCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [
    { numTokens: 1, numChoices: 8, numExperts: 9 },
    { numTokens: 5, numChoices: 2, numExperts: 3 },
    { numTokens: 3, numChoices: 1, numExperts: 1 },
  ].map(({ numTokens, numChoices, numExperts }) => ({
    op: 'expert-bias',
    name: `${numTokens} x ${numChoices} of ${numExperts} x ${length}`,
    dtypes: {},
    attributes: {},
    create(rng, { unit, tiny }) {
      const x = gaussian(rng, [numTokens, numChoices, length], 3, 0);
      const bias = gaussian(rng, [numExperts, length]);
      const chosen = Array.from({ length: numTokens * numChoices }, () => rng.nextInt(numExperts));
      const [xs, biases] = [numbersOf(x), numbersOf(bias)];
      const y = close(xs.length, (index) => {
        const row = Math.floor(index / Math.max(1, length));
        const sum = xs[index] + biases[chosen[row] * length + (index % length)];
        return [sum, unit * Math.abs(sum) + tiny];
      });
      return { inputs: { x, ids: ints([numTokens, numChoices], chosen, 0), bias }, expected: { y } };
    },
  })),
);
