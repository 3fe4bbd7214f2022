/** Pointwise non-linearities, in f64. */

export type ActivationKind = 'silu' | 'gelu-tanh' | 'gelu-erf' | 'relu' | 'relu2' | 'sigmoid';

/** In the order of their encoded values. */
export const activationKinds: readonly ActivationKind[] = ['silu', 'gelu-tanh', 'gelu-erf', 'relu', 'relu2', 'sigmoid'];

/** The function of a kind. */
export function activationFunction(kind: ActivationKind): (x: number) => number {
  return functions[kind];
}

const functions: Readonly<Record<ActivationKind, (x: number) => number>> = {
  silu: (x) => x / (1 + Math.exp(-x)),
  // arXiv:1606.08415 section 2, the tanh form
  'gelu-tanh': (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  'gelu-erf': (x) => 0.5 * x * erfc(-x / Math.SQRT2),
  relu: (x) => (x <= 0 ? 0 : x), // NaN propagates
  relu2: (x) => (x <= 0 ? 0 : x * x),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
};

/**
 * Complementary error function `1 - erf(x)`. For |x| < 1.5 it uses a series of erf without cancellation (all terms are
 * positive; it stops below 1e-17 of the sum), beyond that the continued fraction of erfc. Relative error below 1e-13 if
 * the result is normal.
 * Source: Abramowitz and Stegun 7.1.6 and 7.1.14.
 */
export function erfc(x: number): number {
  if (Number.isNaN(x)) return NaN;
  if (x < 0) return 2 - erfc(-x);
  if (x < 1.5) {
    let term = x;
    let sum = x;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (2 * x * x) / (2 * n + 1);
      sum += term;
    }
    return 1 - (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
  }
  if (x > 27) return 0;
  let fraction = 0;
  for (let n = 80; n >= 1; n--) fraction = n / 2 / (x + fraction);
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + fraction);
}
