/** Activations in float64 with their error bounds, with other formulas than the reference. */
import { underflow, type Arithmetic } from './arithmetic.js';

/** `[value, bound]` of one activation at `x`. */
export function activationTruth(kind: string, x: number, arithmetic: Arithmetic): readonly [number, number] {
  const { unit, elementary, tiny } = arithmetic;
  switch (kind) {
    case 'relu':
      return [Number.isNaN(x) ? NaN : Math.max(x, 0), 0];
    case 'relu2': {
      const y = Number.isNaN(x) ? NaN : Math.max(x, 0) ** 2;
      return [y, unit * y + tiny];
    }
    case 'sigmoid': {
      const y = logistic(x);
      // exp and one sum and quotient; where exp(-x) leaves the range of float32 the result is 0
      return [y, (elementary + 3 * unit) * y + underflow];
    }
    case 'silu': {
      const y = x * logistic(x);
      const overflow = x < -87 ? Math.abs(x) * underflow : 0;
      return [y, (elementary + 4 * unit) * Math.abs(y) + overflow + tiny];
    }
    case 'gelu-tanh': {
      const z = Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3);
      // 1 + tanh(z) = 2 / (1 + exp(-2 z)); z is off by 6 roundings, and the sum 1 + tanh by a unit of 1
      const slope = z === Infinity || z === -Infinity ? 0 : Math.abs(z) / Math.cosh(Math.min(Math.abs(z), 300)) ** 2;
      return [x * logistic(2 * z), Math.abs(x) * (elementary + 4 * unit + 8 * unit * slope) + tiny];
    }
    case 'gelu-erf': {
      const slope = Math.abs(x) * Math.exp((-x * x) / 2);
      return [x * normalDistribution(x), Math.abs(x) * (elementary + 4 * unit + 8 * unit * slope) + tiny];
    }
    default:
      return [NaN, NaN];
  }
}

/** `1 / (1 + exp(-x))` without overflow. */
function logistic(x: number): number {
  if (x >= 0) return 1 / (1 + Math.exp(-x));
  const e = Math.exp(x);
  return e / (1 + e);
}

/** Integral of the normal density up to `x`, by Simpson's rule over `[0, |x|]`; absolute error below 1e-12. */
export function normalDistribution(x: number): number {
  if (Number.isNaN(x)) return NaN;
  const end = Math.min(Math.abs(x), 9);
  const numSteps = 400;
  const step = end / numSteps;
  let sum = 0;
  for (let i = 0; i <= numSteps; i++) {
    const weight = i === 0 || i === numSteps ? 1 : i % 2 === 1 ? 4 : 2;
    sum += weight * Math.exp(-((i * step) ** 2) / 2);
  }
  const half = (sum * step) / 3 / Math.sqrt(2 * Math.PI);
  if (x >= 9) return 1;
  if (x <= -9) return 0;
  return x < 0 ? 0.5 - half : 0.5 + half;
}
