import type { KernelCase } from '../kernel-case.js';
import { exact, floats, gaussian, lengths, numbersOf, seasoned, specials } from '../values.js';

/** Exact: a stable descending sort with NaN last, cut after k. */
export const topKCases: readonly KernelCase[] = lengths
  .filter((length) => length > 0)
  .flatMap((length): KernelCase[] =>
    ['gaussian', 'ties', 'special'].flatMap((content) =>
      [...new Set([1, Math.min(length, 5), Math.ceil(length / 2), length])].map((k) => ({
        op: 'top-k',
        name: `${content}, ${k} of 3 x ${length}`,
        dtypes: {},
        attributes: { k },
        create(rng) {
          const shape = [3, length];
          const x =
            content === 'gaussian'
              ? gaussian(rng, shape, 1, 0)
              : content === 'special'
                ? seasoned(rng, shape, specials, 0)
                : floats(
                    shape,
                    Array.from({ length: 3 * length }, () => rng.nextInt(5) - 2),
                    0,
                  );
          const xs = numbersOf(x);
          const rank = (v: number): number => (Number.isNaN(v) ? -Infinity : v);
          const indices = [0, 1, 2].flatMap((row) => {
            const order = Array.from({ length }, (_, i) => i);
            const at = (i: number): number => xs[row * length + i];
            order.sort((a, b) => {
              if (Number.isNaN(at(a)) !== Number.isNaN(at(b))) return Number.isNaN(at(a)) ? 1 : -1;
              return rank(at(a)) === rank(at(b)) ? a - b : rank(at(b)) - rank(at(a));
            });
            return order.slice(0, k);
          });
          const values = exact(indices.map((index, i) => xs[Math.floor(i / k) * length + index]));
          return {
            inputs: { x },
            expected: { values, indices: { kind: 'integers', values: Int32Array.from(indices) } },
          };
        },
      })),
    ),
  );
