import type { Rng } from '@winnow/tensor';
import type { CaseTensor, KernelCase } from '../kernel-case.js';
import { exact, floats, gaussian, lengths, numbersOf, gaussianWith, specials } from '../values.js';

const numRows = 3;
type Content = 'gaussian' | 'ties' | 'special' | 'NaN first';

function rowsOf(content: Content, length: number, rng: Rng): CaseTensor {
  const shape = [numRows, length];
  if (content === 'gaussian') return gaussian(rng, shape, 1, 0);
  if (content === 'special') return gaussianWith(rng, shape, specials, 0);
  const values = Array.from({ length: numRows * length }, (_, index) => {
    if (content === 'ties') return rng.nextInt(5) - 2;
    return index % length < 2 ? NaN : rng.nextGaussian();
  });
  return floats(shape, values, 0);
}

/** Exact: a stable descending sort with NaN last, cut after k. */
function topKCase(content: Content, k: number, length: number): KernelCase {
  return {
    op: 'top-k',
    name: `${content}, ${k} of ${numRows} x ${length}`,
    dtypes: {},
    attributes: { k },
    create(rng) {
      const x = rowsOf(content, length, rng);
      const xs = numbersOf(x);
      const rank = (v: number): number => (Number.isNaN(v) ? -Infinity : v);
      const indices = Array.from({ length: numRows }, (_, row) => row).flatMap((row) => {
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
  };
}

export const topKCases: readonly KernelCase[] = [
  ...lengths
    .filter((length) => length > 0)
    .flatMap((length) =>
      (['gaussian', 'ties', 'special'] as const).flatMap((content) =>
        [...new Set([1, Math.min(length, 5), Math.ceil(length / 2), length])].map((k) => topKCase(content, k, length)),
      ),
    ),
  // NaN is the worst so far when the rest is compared with it, four at a time
  topKCase('NaN first', 2, 16),
  topKCase('NaN first', 5, 33),
];
