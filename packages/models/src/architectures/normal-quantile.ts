/** The standard normal distribution. */

/** P(X < x) for x from 0 on, by the series of odd powers (Abramowitz and Stegun 26.2.11). */
function belowPositive(x: number): number {
  let [term, sum] = [x, x];
  for (let odd = 3; term > sum * 2 ** -54; odd += 2) {
    term *= (x * x) / odd;
    sum += term;
  }
  return 0.5 + (Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI)) * sum;
}

/** The x with `P(X < x) = share`, for shares of 0 to 1 without these. */
export function normalQuantile(share: number): number {
  if (share < 0.5) return -normalQuantile(1 - share);
  let [low, high] = [0, 9];
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (belowPositive(middle) < share) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** The cumulative distribution function `P(X < x)`. */
export function normalCdf(x: number): number {
  return x < 0 ? 1 - normalCdf(-x) : belowPositive(Math.min(x, 9));
}
