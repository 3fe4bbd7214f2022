/** The maximum of a row and the sum of its exponentials: building blocks of softmax and log-sum-exp. */
import { exp4, maxLane, promoteHigh, sum2 } from './vector';
import { loadTail, storeTail } from './tail';

/** Maximum of a row; NaN if it contains one. */
export function maxOf(x: usize, length: i32): f32 {
  let best = f32x4.splat(-Infinity);
  let i = 0;
  for (; i + 4 <= length; i += 4, x += 16) best = f32x4.max(best, v128.load(x));
  let result = maxLane<f32>(best);
  for (; i < length; i++, x += 4) result = max<f32>(result, load<f32>(x));
  return result;
}

/** `y = exp(x - shift)`; returns the sum in f64. `y` may be 0 if only the sum is needed. */
export function expSum(x: usize, y: usize, shift: f32, length: i32): f64 {
  const offset = f32x4.splat(shift);
  let a = f64x2.splat(0);
  let b = f64x2.splat(0);
  let i = 0;
  for (; i + 4 <= length; i += 4, x += 16) {
    const e = exp4(f32x4.sub(v128.load(x), offset));
    if (y !== 0) {
      v128.store(y, e);
      y += 16;
    }
    a = f64x2.add(a, f64x2.promote_low_f32x4(e));
    b = f64x2.add(b, promoteHigh(e));
  }
  if (i < length) {
    let e = exp4(f32x4.sub(loadTail(x, length - i), offset));
    if (y !== 0) storeTail(y, e, length - i);
    // lanes beyond the row hold exp of the padding
    if (length - i < 2) e = f32x4.replace_lane(e, 1, 0);
    if (length - i < 3) e = f32x4.replace_lane(e, 2, 0);
    e = f32x4.replace_lane(e, 3, 0);
    a = f64x2.add(a, f64x2.promote_low_f32x4(e));
    b = f64x2.add(b, promoteHigh(e));
  }
  return sum2(f64x2.add(a, b));
}
