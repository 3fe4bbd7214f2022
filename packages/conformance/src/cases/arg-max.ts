import type { KernelCase } from '../kernel-case.js';
import { floats, gaussian, lengths, numbersOf, product, gaussianWith, specials } from '../values.js';

/** Exact: the first index of the largest value that is not NaN, 0 where there is none. */
export const argMaxCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  ['gaussian', 'ties', 'special', 'only NaN', 'NaN and minus infinity'].map((content) => ({
    op: 'arg-max',
    name: `${content}, 3 x ${length}`,
    dtypes: {},
    attributes: {},
    create(rng) {
      const shape = [3, length];
      const fill = (next: () => number): number[] => Array.from({ length: product(shape) }, next);
      const x =
        content === 'gaussian'
          ? gaussian(rng, shape, 1, 0)
          : content === 'special'
            ? gaussianWith(rng, shape, specials, 0)
            : floats(shape, fill(tied[content](() => rng.nextInt(4))), 0);
      const xs = numbersOf(x);
      const values = Int32Array.from([0, 1, 2], (row) => {
        const numbers = [...xs.subarray(row * length, (row + 1) * length)].map((v) => (v === 0 ? 0 : v));
        const candidates = numbers.filter((v) => !Number.isNaN(v));
        return candidates.length === 0 ? 0 : numbers.indexOf(candidates.sort((a, b) => b - a)[0]);
      });
      return { inputs: { x }, expected: { index: { kind: 'integers', values } } };
    },
  })),
);

const tied: Readonly<Record<string, (next: () => number) => () => number>> = {
  ties: (next) => () => next() - 3,
  'only NaN': () => () => NaN,
  'NaN and minus infinity': (next) => () => (next() < 3 ? NaN : -Infinity),
};
