import type { KernelCase } from '../kernel-case.js';
import { close, finiteSpecials, gaussian, lengths, numbersOf, gaussianWith, specials } from '../values.js';

/**
 * A sum of n squares in any order is off by at most n + 1 roundings, of which the root takes half; three more multiply.
 */
export const rmsNormCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  [
    { content: 'gaussian', values: [1], eps: 1e-6 },
    { content: 'special finite', values: finiteSpecials, eps: 1e-5 },
    { content: 'special', values: specials, eps: 1e-5 },
    { content: 'denormal', values: [1e-40, -1e-39, 0], eps: 1e-12 },
  ].map(({ content, values, eps }) => ({
    op: 'rms-norm',
    name: `${content}, 3 x ${length}`,
    dtypes: {},
    attributes: { eps },
    create(rng, { unit, elementary, tiny }) {
      const x = content === 'gaussian' ? gaussian(rng, [3, length], 1, 0) : gaussianWith(rng, [3, length], values, 0);
      const weight = gaussian(rng, [length]);
      const [xs, ws] = [numbersOf(x), numbersOf(weight)];
      const scales = [0, 1, 2].map((row) => {
        const meanSquare = xs.subarray(row * length, (row + 1) * length).reduce((sum, v) => sum + (v * v) / length, 0);
        return (meanSquare + Math.fround(eps)) ** -0.5;
      });
      const relative = ((length + 1) / 2 + 4) * unit + elementary;
      const y = close(xs.length, (i) => {
        const scale = scales[Math.floor(i / length)];
        const value = xs[i] * scale * ws[i % length];
        // a denormal x or product may be off by `tiny` before it is scaled
        return [value, relative * Math.abs(value) + tiny * (2 + scale * Math.abs(ws[i % length]))];
      });
      return { inputs: { x, weight }, expected: { y } };
    },
  })),
);
