/**
 * Dot products of f32 activations with f16 weights. The bits of a normal binary16 become those of the f32 by a shift and
 * an addition to the exponent. Zeros, denormals, Inf and NaN are noticed eight columns of four rows at a time, and these
 * columns are converted with care.
 */
import { halfMask, halfOffset, largestRank, leastNormal, magnitudeMask } from './constants';
import { fma, halfToFloat, halfToFloat4, sum4 } from './simd';

/** Upper or lower four weights of eight, which have to be normal numbers. */
function low4(v: v128, mask: v128, offset: v128): v128 {
  return i32x4.add(v128.and(i32x4.shl(i32x4.extend_low_i16x8_s(v), 13), mask), offset);
}
function high4(v: v128, mask: v128, offset: v128): v128 {
  return i32x4.add(v128.and(i32x4.shl(i32x4.extend_high_i16x8_s(v), 13), mask), offset);
}

/** Zero for normal numbers of least magnitude, 0x77ff for the largest, above for everything else. */
function rank(v: v128, mask: v128, least: v128): v128 {
  return i16x8.sub(v128.and(v, mask), least);
}

/** Four rows at a time. */
export function dots4F16(x: usize, w0: usize, w1: usize, w2: usize, w3: usize, count: i32): v128 {
  const mask = halfMask();
  const magnitude = magnitudeMask();
  const least = leastNormal();
  const limit = largestRank();
  const offset = halfOffset();
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  const whole = count & ~7;
  const end = <usize>whole << 1;
  for (let at: usize = 0; at < end; at += 16) {
    const low = v128.load(x + (at << 1));
    const high = v128.load(x + (at << 1), 16);
    const v0 = v128.load(w0 + at);
    const v1 = v128.load(w1 + at);
    const v2 = v128.load(w2 + at);
    const v3 = v128.load(w3 + at);
    const top = i16x8.max_u(
      i16x8.max_u(rank(v0, magnitude, least), rank(v1, magnitude, least)),
      i16x8.max_u(rank(v2, magnitude, least), rank(v3, magnitude, least)),
    );
    if (v128.any_true(i16x8.gt_u(top, limit))) {
      a = careful(v0, low, high, a);
      b = careful(v1, low, high, b);
      c = careful(v2, low, high, c);
      d = careful(v3, low, high, d);
      continue;
    }
    a = fma(low4(v0, mask, offset), low, a);
    b = fma(low4(v1, mask, offset), low, b);
    c = fma(low4(v2, mask, offset), low, c);
    d = fma(low4(v3, mask, offset), low, d);
    a = fma(high4(v0, mask, offset), high, a);
    b = fma(high4(v1, mask, offset), high, b);
    c = fma(high4(v2, mask, offset), high, c);
    d = fma(high4(v3, mask, offset), high, d);
  }
  let s = f32x4(sum4(a), sum4(b), sum4(c), sum4(d));
  for (let i = <usize>whole; i < <usize>count; i++) {
    const four = f32x4(
      halfToFloat(load<u16>(w0 + (i << 1))),
      halfToFloat(load<u16>(w1 + (i << 1))),
      halfToFloat(load<u16>(w2 + (i << 1))),
      halfToFloat(load<u16>(w3 + (i << 1))),
    );
    s = fma(four, v128.load32_splat(x + (i << 2)), s);
  }
  return s;
}

function careful(v: v128, low: v128, high: v128, sum: v128): v128 {
  sum = fma(halfToFloat4(i32x4.extend_low_i16x8_u(v)), low, sum);
  return fma(halfToFloat4(i32x4.extend_high_i16x8_u(v)), high, sum);
}
