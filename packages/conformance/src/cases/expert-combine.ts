import type { KernelCase } from '../kernel-case.js';
import { close, gaussian, lengths, numbersOf } from '../values.js';

/** K products and K sums in any order. */
export const expertCombineCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [
    { numTokens: 1, numChoices: 8 },
    { numTokens: 5, numChoices: 2 },
    { numTokens: 3, numChoices: 1 },
  ].map(({ numTokens, numChoices }) => ({
    op: 'expert-combine',
    name: `${numTokens} x ${numChoices} x ${length}`,
    dtypes: {},
    attributes: {},
    create(rng, { unit, tiny }) {
      const x = gaussian(rng, [numTokens, numChoices, length], 3, 0);
      const weights = gaussian(rng, [numTokens, numChoices], 1, 0);
      const [xs, ws] = [numbersOf(x), numbersOf(weights)];
      const y = close(numTokens * length, (index) => {
        const [t, i] = [Math.floor(index / length), index % length];
        let sum = 0;
        let magnitude = 0;
        for (let k = numChoices - 1; k >= 0; k--) {
          const term = ws[t * numChoices + k] * xs[(t * numChoices + k) * length + i];
          sum += term;
          magnitude += Math.abs(term);
        }
        return [sum, (numChoices + 1) * (unit * magnitude + tiny)];
      });
      return { inputs: { x, weights }, expected: { y } };
    },
  })),
);
