import type { KernelCase } from '../kernel-case.js';
import { close, finiteSpecials, gaussian, lengths, numbersOf, gaussianWith } from '../values.js';
import { weightedDistance } from './softmax.js';

const contents: Readonly<Record<string, readonly number[]>> = {
  gaussian: [],
  'special finite': finiteSpecials,
  'minus infinity': [-Infinity],
  'NaN and infinities': [NaN, 1, Infinity, -Infinity],
};

/** The relative error of the sum becomes an absolute one of its logarithm; then the logarithm and the last sum round. */
export const logSumExpCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  Object.entries(contents).map(([content, values]) => ({
    op: 'log-sum-exp',
    name: `${content}, 3 x ${length}`,
    dtypes: {},
    attributes: {},
    create(rng, { unit, elementary, tiny }) {
      const x = content === 'gaussian' ? gaussian(rng, [3, length], 4, 0) : gaussianWith(rng, [3, length], values, 0);
      const xs = numbersOf(x);
      const y = close(3, (index) => {
        const row = xs.subarray(index * length, (index + 1) * length);
        if (row.some((v) => Number.isNaN(v) || v === Infinity)) return [NaN, 0];
        if (row.every((v) => v === -Infinity)) return [-Infinity, 0];
        // log1p of the others keeps the digits that log(1 + ...) would lose
        const sorted = row.slice().sort();
        const max = sorted[length - 1];
        const rest = sorted.subarray(0, length - 1).reduce((sum, v) => sum + Math.exp(v - max), 0);
        const log = Math.log1p(rest);
        const sumError = elementary + (length + 2 + weightedDistance(row, max)) * unit;
        return [max + log, sumError + elementary * log + unit * Math.abs(max + log) + tiny];
      });
      return { inputs: { x }, expected: { y } };
    },
  })),
);
