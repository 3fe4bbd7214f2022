/** Quantiles of the standard normal distribution, for policies with a probability of failure. */

/** Terms of the continued fraction: enough for f64 from x = 1 on. */
const numTerms = 300;

/** P(X > x) for x of 1 or more, by Laplace's continued fraction of Mills' ratio. */
function upperTail(x: number): number {
  let ratio = x;
  for (let n = numTerms; n > 0; n--) ratio = x + n / ratio;
  return Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI) / ratio;
}

/** The x with `P(|X| > x) = delta`, for delta of at most 0.3. Numerics: absolute error below 1e-12. */
export function twoSidedQuantile(delta: number): number {
  let [low, high] = [1, 40]; // below P(|X| > 40) = 1e-349, which is no f64
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (2 * upperTail(middle) > delta) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}
