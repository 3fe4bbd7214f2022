/** Small vector primitives that kernels are built from. */
import { highTwos, highWords, lowTwos, lowWords } from './interleave';

/** `a * b + c`, rounded once or twice depending on the build and the machine. */
export function fma(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

/** Sum of the four lanes, pairwise. */
export function sum4(v: v128): f32 {
  const pair = f32x4.add(v, i8x16.shuffle(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
  return f32x4.extract_lane(pair, 0) + f32x4.extract_lane(pair, 1);
}

/** The horizontal sums of four vectors, as one vector. */
export function laneSums(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = f32x4.add(lowWords(a, b), highWords(a, b));
  const cd = f32x4.add(lowWords(c, d), highWords(c, d));
  return f32x4.add(lowTwos(ab, cd), highTwos(ab, cd));
}

/** The same for integers. */
/* @inline */ export function intLaneSums(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = i32x4.add(lowWords(a, b), highWords(a, b));
  const cd = i32x4.add(lowWords(c, d), highWords(c, d));
  return i32x4.add(lowTwos(ab, cd), highTwos(ab, cd));
}

/** The sums of neighboring lanes of two vectors of integers. */
export function addNeighbors(low: v128, high: v128): v128 {
  const even = i8x16.shuffle(low, high, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  const odd = i8x16.shuffle(low, high, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  return i32x4.add(even, odd);
}

/** Low nibbles of bytes; `mask` is `nibbleMask()`. */
export function lowNibbles(v: v128, mask: v128): v128 {
  return v128.and(v, mask);
}

/** High nibbles of bytes. */
export function highNibbles(v: v128, mask: v128): v128 {
  return v128.and(i16x8.shr_u(v, 4), mask);
}

export function sum2(v: v128): f64 {
  return f64x2.extract_lane(v, 0) + f64x2.extract_lane(v, 1);
}

/** Upper two f32 lanes as f64. */
export function promoteHigh(v: v128): v128 {
  return f64x2.promote_low_f32x4(i8x16.shuffle(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
}

/** Maximum of the four lanes; NaN if any lane is NaN. */
export function maxLane<T>(v: v128): T {
  const low = max<T>(v128.extract_lane<T>(v, 0), v128.extract_lane<T>(v, 1));
  return max<T>(low, max<T>(v128.extract_lane<T>(v, 2), v128.extract_lane<T>(v, 3)));
}

/** Sum of the four integers. */
export function sumI4(v: v128): i32 {
  return i32x4.extract_lane(v, 0) + i32x4.extract_lane(v, 1) + i32x4.extract_lane(v, 2) + i32x4.extract_lane(v, 3);
}

/** Minimum of the four unsigned integers. */
export function minU4(v: v128): u32 {
  return min<u32>(
    min<u32>(<u32>i32x4.extract_lane(v, 0), <u32>i32x4.extract_lane(v, 1)),
    min<u32>(<u32>i32x4.extract_lane(v, 2), <u32>i32x4.extract_lane(v, 3)),
  );
}

const halfTable = memory.data<u32>([
  0x0fffe000, 0x80000000, 0x00800000, 0x0f7fffff, 0x38000000, 0x38800000, 0x38800000, 0x7f800000,
]);

/** Four binary16 numbers in the low halves of i32 lanes, as f32: exact, denormals, Inf and NaN included. */
export function halfToFloat4(h: v128): v128 {
  const magnitude = v128.and(i32x4.shl(h, 13), v128.load32_splat(halfTable));
  const sign = v128.and(i32x4.shl(h, 16), v128.load32_splat(halfTable, 4));
  const isSmall = i32x4.lt_s(magnitude, v128.load32_splat(halfTable, 8));
  const isSpecial = i32x4.gt_s(magnitude, v128.load32_splat(halfTable, 12));
  const normal = i32x4.add(magnitude, v128.load32_splat(halfTable, 16));
  // 2^-14 as f32 has the bits 0x38800000
  const small = f32x4.sub(i32x4.add(magnitude, v128.load32_splat(halfTable, 20)), v128.load32_splat(halfTable, 24));
  const special = v128.and(isSpecial, v128.load32_splat(halfTable, 28));
  return v128.or(v128.or(sign, special), v128.bitselect(small, normal, isSmall));
}

/** Four normal, sign-extended binary16 numbers as f32; `mask` and `offset` are `halfMask()` and `halfOffset()`. */
export function normalHalves(v: v128, mask: v128, offset: v128): v128 {
  return i32x4.add(v128.and(i32x4.shl(v, 13), mask), offset);
}

export function halfToFloat(bits: u32): f32 {
  return f32x4.extract_lane(halfToFloat4(i32x4.splat(bits)), 0);
}

/** Nearest binary16, ties to even, as the codec of `@winnow/tensor` rounds. */
export function floatToHalf(value: f32): u32 {
  const bits = reinterpret<u32>(value);
  const sign = (bits >> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | ((magnitude >> 13) & 0x3ff);
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    // denormal: adding 0.5 aligns the binary point with the last bit of binary16
    const aligned = reinterpret<u32>(reinterpret<f32>(magnitude) + <f32>0.5);
    return sign | (aligned - 0x3f000000);
  }
  const odd = (magnitude >> 13) & 1;
  return sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

// Constants of exp4, read from memory because V8 builds a vector constant with three instructions at every use.
const expTable = memory.data<f32>([
  -104, 89, 1.4426950408889634, 0.693359375, 2.1219444e-4, 1.98756915e-4, 1.3981999507e-3, 8.3334519073e-3,
  4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1, 12582912,
]);
const expBias = memory.data<i32>([127]);

/** exp(x - n ln 2) by a two-part ln 2 and a polynomial of degree 7; coefficients: expf of the Cephes library. */
/* @inline */ function expRest(x: v128, n: v128): v128 {
  let r = f32x4.sub(x, f32x4.mul(n, v128.load32_splat(expTable, 12)));
  r = fma(n, v128.load32_splat(expTable, 16), r);
  let p = fma(v128.load32_splat(expTable, 20), r, v128.load32_splat(expTable, 24));
  p = fma(p, r, v128.load32_splat(expTable, 28));
  p = fma(p, r, v128.load32_splat(expTable, 32));
  p = fma(p, r, v128.load32_splat(expTable, 36));
  p = fma(p, r, v128.load32_splat(expTable, 40));
  return f32x4.add(fma(p, f32x4.mul(r, r), r), v128.load32_splat(expTable, 44));
}

/** exp of four numbers, relative error below 1.5e-7; 0 and Inf beyond the range, NaN is preserved. */
export function exp4(x: v128): v128 {
  // pmin(a, b) is a unless b < a: one instruction each, and NaN is preserved
  const bounded = f32x4.pmin(f32x4.pmax(x, v128.load32_splat(expTable)), v128.load32_splat(expTable, 4));
  // adding 1.5 * 2^23 leaves the integer part in the low bits
  const magic = v128.load32_splat(expTable, 48);
  const shifted = fma(bounded, v128.load32_splat(expTable, 8), magic);
  const n = f32x4.sub(shifted, magic);
  const value = expRest(bounded, n);
  // two factors, so that the ends of the range neither overflow early nor lose the denormals
  const exponent = i32x4.sub(shifted, magic);
  const half = i32x4.shr_s(exponent, 1);
  const rest = i32x4.sub(exponent, half);
  const bias = v128.load32_splat(expBias);
  const first = f32x4.mul(value, i32x4.shl(i32x4.add(half, bias), 23));
  return f32x4.mul(first, i32x4.shl(i32x4.add(rest, bias), 23));
}

/** Below this, exp is not a normal number. */
const leastLog = memory.data<f32>([-87]);

/**
 * exp of four numbers up to 0, relative error below 1.5e-7; below -87 the result is 0, because a denormal one
 * would cost every multiplication with it over a hundred cycles. NaN is preserved.
 */
export function weight4(x: v128): v128 {
  const least = v128.load32_splat(leastLog);
  const bounded = f32x4.pmax(x, least);
  const magic = v128.load32_splat(expTable, 48);
  const shifted = fma(bounded, v128.load32_splat(expTable, 8), magic);
  const n = f32x4.sub(shifted, magic);
  const value = expRest(bounded, n);
  // the low bits of `shifted` are n: added to the exponent of 1 they make 2^n
  const power = i32x4.add(i32x4.shl(shifted, 23), v128.load32_splat(expTable, 44));
  return v128.andnot(f32x4.mul(value, power), f32x4.lt(x, least));
}

/** tanh of four numbers, relative error below 3e-7: a polynomial near zero (tanhf of Cephes), exp beyond. */
export function tanh4(x: v128): v128 {
  const magnitude = f32x4.abs(x);
  const z = f32x4.mul(x, x);
  let p = fma(f32x4.splat(-5.70498872745e-3), z, f32x4.splat(2.06390887954e-2));
  p = fma(p, z, f32x4.splat(-5.37397155531e-2));
  p = fma(p, z, f32x4.splat(1.33314422036e-1));
  p = fma(p, z, f32x4.splat(-3.33332819422e-1));
  const near = fma(f32x4.mul(p, z), x, x);
  const e = exp4(f32x4.add(magnitude, magnitude));
  const far = f32x4.sub(f32x4.splat(1), f32x4.div(f32x4.splat(2), f32x4.add(e, f32x4.splat(1))));
  const signed = v128.or(far, v128.and(x, i32x4.splat(0x80000000)));
  return v128.bitselect(near, signed, f32x4.lt(magnitude, f32x4.splat(0.625)));
}
