/** Means with standard errors, percentiles, covariance. */

/** A mean and its standard error. */
export interface Estimate {
  readonly mean: number;
  /** Standard error: sqrt(variance / (n - 1)), as in llama-perplexity; 0 for fewer than two values. */
  readonly error: number;
}

export function estimate(values: ArrayLike<number>): Estimate {
  const mean = meanOf(values);
  const variance = meanOf(Float64Array.from(values, (value) => (value - mean) ** 2));
  return { mean, error: values.length < 2 ? 0 : Math.sqrt(variance / (values.length - 1)) };
}

export function meanOf(values: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i];
  return values.length === 0 ? 0 : sum / values.length;
}

/** The quantile `p` in [0, 1], interpolated linearly between order statistics. @param sorted ascending */
export function percentile(sorted: ArrayLike<number>, p: number): number {
  if (sorted.length === 0) return 0;
  const place = p * (sorted.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

/** Covariance. */
export function covarianceOf(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const [meanA, meanB] = [meanOf(a), meanOf(b)];
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] - meanA) * (b[i] - meanB);
  return a.length === 0 ? 0 : sum / a.length;
}
