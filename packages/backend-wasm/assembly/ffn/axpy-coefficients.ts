/**
 * Coefficients of axpy over eight rows: the eight factors h times the scales of a block, quantized to 8-bit integers with one
 * common step, as GEMV does with activations; the error is at most half a step, 1/254 of the largest. Four blocks at a time, one
 * in each lane.
 */
import { dot } from '../quant/int8-dot';
import { storeSignMagnitude } from '../quant/quantize-activations';
import { largestCode, leastInvertible, leastNormal, upperExponent } from '../simd/constants.generated';
import { fma } from '../simd/vector';

// coefficients of four blocks: codes [4] of rows 0 to 3, codes [4] of rows 4 to 7, initial sums [4], steps [4]; for q8_0 without
// usdot, the codes are magnitudes, and signs [8] follow
export const LAST: usize = 16;
export const START: usize = 32;
export const STEPS: usize = 48;
export const SIGNS: usize = 64;
export const COEFFICIENTS_BYTES: usize = 96;

/** The first four of eight normal binary16 numbers, as f32. */
/* @inline */ export function lowFloats(scales: v128, mask: v128, offset: v128): v128 {
  const wide = i8x16.shuffle(scales, scales, 0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7);
  return i32x4.add(v128.and(i32x4.shr_s(wide, 3), mask), offset);
}

/** The last four. */
/* @inline */ export function highFloats(scales: v128, mask: v128, offset: v128): v128 {
  const wide = i8x16.shuffle(scales, scales, 8, 9, 8, 9, 10, 11, 10, 11, 12, 13, 12, 13, 14, 15, 14, 15);
  return i32x4.add(v128.and(i32x4.shr_s(wide, 3), mask), offset);
}

/** Whether all scales are normal numbers: the rank of an exponent of all ones or all zeros is zero. */
/* @inline */ export function areNormal(r0: v128, r1: v128, r2: v128, r3: v128): bool {
  const least = leastNormal();
  const upper = upperExponent();
  const low = i16x8.min_u(v128.and(i16x8.add(r0, least), upper), v128.and(i16x8.add(r1, least), upper));
  const high = i16x8.min_u(v128.and(i16x8.add(r2, least), upper), v128.and(i16x8.add(r3, least), upper));
  return i16x8.all_true(i16x8.min_u(low, high));
}

/** The larger magnitude, as bits shifted left by one to drop the sign: NaN is larger than anything. */
/* @inline */ export function larger(a: v128, b: v128): v128 {
  return i32x4.max_u(i32x4.shl(a, 1), i32x4.shl(b, 1));
}

/** The integers nearest to `product * inverse`, rounded only once on machines with FMA. */
/* @inline */ export function rounded(product: v128, inverse: v128, magic: v128): v128 {
  return i32x4.sub(fma(product, inverse, magic), magic);
}

/** `old + sums * step` for integer sums. */
/* @inline */ export function scaled(sums: v128, step: v128, old: v128): v128 {
  return fma(f32x4.convert_i32x4_s(sums), step, old);
}

/** Adds integer sums times `scale` to four columns of y. */
/* @inline */ export function addColumns(y: usize, sums: v128, scale: v128): void {
  v128.store(y, scaled(sums, scale, v128.load(y)));
}

/** Codes of four rows as bytes, with the four of a block adjacent. */
/* @inline */ export function narrowed(a: v128, b: v128, c: v128, d: v128): v128 {
  const codes = i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(a, b), i16x8.narrow_i32x4_s(c, d));
  return i8x16.shuffle(codes, codes, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

/** Stores the steps of four blocks and returns their inverses. */
/* @inline */ export function storeSteps(largest: v128, to: usize): v128 {
  // as for activations: values without a finite reciprocal count as zero, and NaN makes the step NaN
  const isFlushed = f32x4.lt(largest, leastInvertible());
  const limit = largestCode();
  v128.store(to, v128.andnot(f32x4.div(largest, limit), isFlushed), STEPS);
  return v128.andnot(f32x4.div(limit, largest), isFlushed);
}

/** Stores the codes, and the initial sums that correct for unsigned codes of weights, which are too large by `excess`. */
/* @inline */ export function storeCodes(hasSigns: bool, first: v128, last: v128, excess: v128, to: usize): void {
  if (hasSigns) {
    const lacking = storeSignMagnitude(first, excess, to, SIGNS);
    v128.store(to, i32x4.add(lacking, storeSignMagnitude(last, excess, to + LAST, SIGNS)), START);
    return;
  }
  v128.store(to, first);
  v128.store(to, last, LAST);
  const none = i32x4.splat(0);
  v128.store(to, i32x4.sub(none, dot(last, excess, dot(first, excess, none))), START);
}
