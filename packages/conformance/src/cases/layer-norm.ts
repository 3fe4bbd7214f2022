import type { KernelCase } from '../kernel-case.js';
import { close, floats, gaussian, lengths, numbersOf, gaussianWith, specials } from '../values.js';

/**
 * With deviations d = x - mean: the error of the mean is n roundings of the mean of |x|, that of every d one rounding
 * more, the variance by twice that times the mean of |d| and n roundings of itself. One pass over x and x^2 does not
 * meet this where the mean is large, and must not.
 */
export const layerNormCases: readonly KernelCase[] = lengths.flatMap((length): KernelCase[] =>
  ['gaussian', 'large mean', 'special'].flatMap((content) =>
    [true, false].map((hasBias) => ({
      op: 'layer-norm',
      name: `${content}, 3 x ${length}${hasBias ? ', bias' : ''}`,
      dtypes: {},
      attributes: { eps: 1e-5 },
      create(rng, { unit, elementary, tiny }) {
        const shape = [3, length];
        const x =
          content === 'special'
            ? gaussianWith(rng, shape, specials, 0)
            : floats(
                shape,
                numbersOf(gaussian(rng, shape)).map((v) => (content === 'gaussian' ? v : 100 + v)),
                0,
              );
        const weight = gaussian(rng, [length]);
        const bias = gaussian(rng, [length]);
        const [xs, ws, bs] = [numbersOf(x), numbersOf(weight), numbersOf(bias)];
        const rows = [0, 1, 2].map((row) => rowFacts(xs.subarray(row * length, (row + 1) * length), unit));
        const y = close(xs.length, (i) => {
          const { mean, variance, meanError, varianceError } = rows[Math.floor(i / length)];
          const scale = 1 / Math.sqrt(variance + Math.fround(1e-5));
          const shift = hasBias ? bs[i % length] : 0;
          const scaled = (xs[i] - mean) * scale * ws[i % length];
          const scaleError = (0.5 * varianceError) / (variance + 1e-5) + elementary + 4 * unit;
          const bound =
            Math.abs(ws[i % length]) * scale * (meanError + unit * Math.abs(xs[i])) +
            Math.abs(scaled) * scaleError +
            unit * (Math.abs(scaled) + 2 * Math.abs(shift)) +
            tiny * (2 + scale * Math.abs(ws[i % length]));
          return [scaled + shift, bound];
        });
        return { inputs: { x, weight, ...(hasBias ? { bias } : {}) }, expected: { y } };
      },
    })),
  ),
);

interface RowFacts {
  readonly mean: number;
  readonly variance: number;
  readonly meanError: number;
  readonly varianceError: number;
}

function rowFacts(row: Float64Array, unit: number): RowFacts {
  const n = row.length;
  const average = (f: (value: number) => number): number => row.reduce((sum, value) => sum + f(value), 0) / n;
  const mean = average((value) => value);
  const variance = average((value) => (value - mean) ** 2);
  const meanError = (n + 1) * unit * average(Math.abs);
  const deviationError = meanError + unit * average(Math.abs);
  const deviation = average((value) => Math.abs(value - mean));
  const varianceError = (n + 3) * unit * variance + 2 * deviationError * deviation + deviationError ** 2;
  return { mean, variance, meanError, varianceError };
}
