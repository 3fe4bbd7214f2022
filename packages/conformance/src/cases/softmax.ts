import { underflow } from '../arithmetic.js';
import type { KernelCase } from '../kernel-case.js';
import { close, finiteSpecials, floats, gaussian, lengths, numbersOf, gaussianWith } from '../values.js';

const contents: Readonly<Record<string, readonly number[]>> = {
  gaussian: [],
  'special finite': finiteSpecials,
  'minus infinity': [-Infinity],
  'NaN and infinities': [NaN, 1, Infinity, -Infinity],
  'only minus infinity': [],
};

/** exp(d) with d = x - max is off by the rounding of d and an elementary error; the sum by the mean of that and n more. */
export const softmaxCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  Object.entries(contents).map(([content, values]) => ({
    op: 'softmax',
    name: `${content}, 3 x ${length}`,
    dtypes: {},
    attributes: {},
    create(rng, { unit, elementary }) {
      const shape = [3, length];
      const x =
        content === 'gaussian'
          ? gaussian(rng, shape, 4, 0)
          : content === 'only minus infinity'
            ? floats(shape, new Array(3 * length).fill(-Infinity), 0)
            : gaussianWith(rng, shape, values, 0);
      const xs = numbersOf(x);
      const rows = [0, 1, 2].map((row) => {
        const values = xs.subarray(row * length, (row + 1) * length);
        const max = values.reduce((largest, v) => Math.max(largest, v), -Infinity);
        return { values, max, meanDistance: weightedDistance(values, max) };
      });
      const y = close(xs.length, (i) => {
        const { values: row, max, meanDistance } = rows[Math.floor(i / length)];
        if (Number.isNaN(max) || max === Infinity) return [NaN, 0];
        if (xs[i] === -Infinity) return [0, 0];
        // p = 1 / sum of exp(x_j - x_i)
        const p = 1 / row.reduce((sum, v) => sum + Math.exp(v - xs[i]), 0);
        const distance = p === 0 ? 0 : max - xs[i];
        return [p, p * (2 * elementary + (length + 4 + distance + meanDistance) * unit) + underflow];
      });
      return { inputs: { x }, expected: { y } };
    },
  })),
);

/** Mean of max - x under the softmax of the row. */
export function weightedDistance(row: Float64Array, max: number): number {
  let sum = 0;
  let weighted = 0;
  for (const v of row) {
    if (v === -Infinity) continue;
    const weight = Math.exp(v - max);
    sum += weight;
    weighted += weight * (max - v);
  }
  return weighted / sum;
}
