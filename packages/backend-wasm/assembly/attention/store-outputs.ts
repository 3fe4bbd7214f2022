/** Outputs of panels become rows. */
import { fma } from '../simd/vector';

/** Eight columns, 32 bytes from number to number, become four rows. */
export function turn(from: usize, to: usize, stride: usize): void {
  for (const end = to + stride; to < end; to += 16, from += 128) {
    const a = v128.load(from);
    const b = v128.load(from, 32);
    const c = v128.load(from, 64);
    const d = v128.load(from, 96);
    const ab = i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const ab2 = i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    const cd = i8x16.shuffle(c, d, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const cd2 = i8x16.shuffle(c, d, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    v128.store(to, i8x16.shuffle(ab, cd, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
    v128.store(to + stride, i8x16.shuffle(ab, cd, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
    v128.store(to + 2 * stride, i8x16.shuffle(ab2, cd2, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
    v128.store(to + 3 * stride, i8x16.shuffle(ab2, cd2, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
  }
}

/**
 * `y = (sum + weight * value, count times) * inverse`; the weights, and the addresses of the values, are 32 bytes apart.
 * `check` becomes NaN when a number is not finite.
 */
export function writeRow(
  sum: usize,
  values: usize,
  weights: usize,
  count: i32,
  inverse: v128,
  y: usize,
  bytes: usize,
  check: v128,
): v128 {
  const zero = f32x4.splat(0);
  let column: usize = 0;
  const end = values + ((<usize>count) << 5);
  for (; column + 128 <= bytes; column += 128) {
    let a = v128.load(sum + column);
    let b = v128.load(sum + column, 16);
    let c = v128.load(sum + column, 32);
    let d = v128.load(sum + column, 48);
    let e = v128.load(sum + column, 64);
    let f = v128.load(sum + column, 80);
    let g = v128.load(sum + column, 96);
    let h = v128.load(sum + column, 112);
    for (let at = values, w = weights; at < end; at += 32, w += 32) {
      const weight = v128.load32_splat(w);
      const value = <usize>load<u32>(at) + column;
      a = fma(v128.load(value), weight, a);
      b = fma(v128.load(value, 16), weight, b);
      c = fma(v128.load(value, 32), weight, c);
      d = fma(v128.load(value, 48), weight, d);
      e = fma(v128.load(value, 64), weight, e);
      f = fma(v128.load(value, 80), weight, f);
      g = fma(v128.load(value, 96), weight, g);
      h = fma(v128.load(value, 112), weight, h);
    }
    a = f32x4.mul(a, inverse);
    b = f32x4.mul(b, inverse);
    c = f32x4.mul(c, inverse);
    d = f32x4.mul(d, inverse);
    e = f32x4.mul(e, inverse);
    f = f32x4.mul(f, inverse);
    g = f32x4.mul(g, inverse);
    h = f32x4.mul(h, inverse);
    v128.store(y + column, a);
    v128.store(y + column, b, 16);
    v128.store(y + column, c, 32);
    v128.store(y + column, d, 48);
    v128.store(y + column, e, 64);
    v128.store(y + column, f, 80);
    v128.store(y + column, g, 96);
    v128.store(y + column, h, 112);
    check = fma(a, zero, fma(b, zero, fma(c, zero, fma(d, zero, check))));
    check = fma(e, zero, fma(f, zero, fma(g, zero, fma(h, zero, check))));
  }
  for (; column < bytes; column += 16) {
    let a = v128.load(sum + column);
    for (let at = values, w = weights; at < end; at += 32, w += 32) {
      a = fma(v128.load(<usize>load<u32>(at) + column), v128.load32_splat(w), a);
    }
    a = f32x4.mul(a, inverse);
    v128.store(y + column, a);
    check = fma(a, zero, check);
  }
  return check;
}
