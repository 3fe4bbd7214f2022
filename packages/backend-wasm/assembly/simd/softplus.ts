/** `ln(1 + exp(x))` without overflow. */
export function softplus(x: f64): f64 {
  return max<f64>(x, 0) + Math.log1p(Math.exp(-abs<f64>(x)));
}
