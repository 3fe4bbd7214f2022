/** Steps of normalization over one row; sums in f64. */
import { promoteHigh, sum2 } from './vector';

export function sumOf(x: usize, length: i32): f64 {
  let a = f64x2.splat(0);
  let b = f64x2.splat(0);
  let i = 0;
  for (; i + 4 <= length; i += 4, x += 16) {
    const v = v128.load(x);
    a = f64x2.add(a, f64x2.promote_low_f32x4(v));
    b = f64x2.add(b, promoteHigh(v));
  }
  let sum = sum2(f64x2.add(a, b));
  for (; i < length; i++, x += 4) sum += <f64>load<f32>(x);
  return sum;
}

export function sumOfSquares(x: usize, length: i32, mean: f64): f64 {
  const shift = f64x2.splat(mean);
  let a = f64x2.splat(0);
  let b = f64x2.splat(0);
  let i = 0;
  for (; i + 4 <= length; i += 4, x += 16) {
    const v = v128.load(x);
    const low = f64x2.sub(f64x2.promote_low_f32x4(v), shift);
    const high = f64x2.sub(promoteHigh(v), shift);
    a = f64x2.add(a, f64x2.mul(low, low));
    b = f64x2.add(b, f64x2.mul(high, high));
  }
  let sum = sum2(f64x2.add(a, b));
  for (; i < length; i++, x += 4) {
    const value = <f64>load<f32>(x) - mean;
    sum += value * value;
  }
  return sum;
}

/** `y = (x - mean) * scale * weight [+ bias]`, in f64, whose cost is small next to the matmuls around it. */
export function scaleShift(x: usize, y: usize, weight: usize, bias: usize, mean: f64, scale: f64, length: i32): void {
  const shift = f64x2.splat(mean);
  const factor = f64x2.splat(scale);
  let i = 0;
  let at: usize = 0;
  for (; i + 2 <= length; i += 2, at += 8) {
    let v = f64x2.promote_low_f32x4(v128.load64_zero(x + at));
    v = f64x2.mul(f64x2.mul(f64x2.sub(v, shift), factor), f64x2.promote_low_f32x4(v128.load64_zero(weight + at)));
    if (bias !== 0) v = f64x2.add(v, f64x2.promote_low_f32x4(v128.load64_zero(bias + at)));
    v128.store64_lane(y + at, f32x4.demote_f64x2_zero(v), 0);
  }
  if (i < length) {
    const offset: f64 = bias === 0 ? 0 : <f64>load<f32>(bias + at);
    store<f32>(y + at, <f32>((<f64>load<f32>(x + at) - mean) * scale * <f64>load<f32>(weight + at) + offset));
  }
}
