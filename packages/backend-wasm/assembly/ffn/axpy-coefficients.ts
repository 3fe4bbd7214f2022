/** Steps of sums of rows: what rows are multiplied by, h times the scales of their blocks, as 8-bit integers. */
import { fma } from '../simd/vector';

/** The first four of eight normal binary16 numbers. */
// @inline
export function lowFloats(scales: v128, mask: v128, offset: v128): v128 {
  const wide = i8x16.shuffle(scales, scales, 0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7);
  return i32x4.add(v128.and(i32x4.shr_s(wide, 3), mask), offset);
}

/** The last four. */
// @inline
export function highFloats(scales: v128, mask: v128, offset: v128): v128 {
  const wide = i8x16.shuffle(scales, scales, 8, 9, 8, 9, 10, 11, 10, 11, 12, 13, 12, 13, 14, 15, 14, 15);
  return i32x4.add(v128.and(i32x4.shr_s(wide, 3), mask), offset);
}

/** The larger magnitude, as its bits without the sign, doubled: NaN is larger than anything. */
// @inline
export function larger(a: v128, b: v128): v128 {
  return i32x4.max_u(i32x4.shl(a, 1), i32x4.shl(b, 1));
}

/** The integers nearest to `product * inverse`, by one rounding where machines have it. */
// @inline
export function rounded(product: v128, inverse: v128, magic: v128): v128 {
  return i32x4.sub(fma(product, inverse, magic), magic);
}

/** What integer sums add to old numbers. */
// @inline
export function scaled(sums: v128, step: v128, old: v128): v128 {
  return fma(f32x4.convert_i32x4_s(sums), step, old);
}
