/**
 * Weighted sums of rows of q8_0 and q4_0 as they lie in files. Eight rows at a time, each with a value h; for each block of 32
 * columns h times the scales of their blocks become 8-bit integers with one step for the eight, as activations do in products:
 * off by at most half a step, 1/254 of the largest. Four rows are interleaved byte by byte on the way into dot products of four.
 * Relaxed builds only.
 */
import {
  flipSigns,
  halfMask,
  halfOffset,
  largestCode,
  leastInvertible,
  leastNormal,
  nibbleMask,
  onePairs,
  roundingMagic,
  upperExponent,
} from '../simd/constants';
import { hasMaddubs, dot, dotCodes, dotTwo, hasUsdot } from '../gemm/int8-dot';
import { highBytes, highPairs, lowBytes, lowPairs } from '../simd/interleave';
import { storeFlips } from '../quant/quantize-activations';
import { highFloats, larger, lowFloats, rounded, scaled } from './axpy-coefficients';
import { halfToFloat4, highNibbles, lowNibbles } from '../simd/vector';

/** Blocks whose coefficients are made at once. */
const FOUR: i32 = 4;
// of them: codes [4][8], what sums begin with [4], steps [4]; where codes of q8_0 are flipped, codes are magnitudes, and flips [4][8] follow
const START: usize = 32;
const STEPS: usize = 48;
const FLIPS: usize = 64;

/** Adds eight rows times the eight numbers at `h` to `y`. They begin `offset` bytes behind the addresses at `rows`. */
export function addRows(
  isQ4: bool,
  rows: usize,
  offset: usize,
  h: usize,
  numBlocks: i32,
  y: usize,
  scratch: usize,
): void {
  const blockBytes: usize = isQ4 ? 18 : 34;
  const last = offset + <usize>(numBlocks - 1) * blockBytes;
  const isFlipped = !isQ4 && !hasUsdot();
  // what codes of weights are too large by
  const excess = isQ4 ? i8x16.splat(8) : flipSigns();
  for (let block = 0; block < numBlocks; block += FOUR, offset += FOUR * blockBytes, y += FOUR << 7) {
    makeCoefficients(isFlipped, rows, offset, blockBytes, last, h, excess, scratch);
    const count = min<i32>(FOUR, numBlocks - block);
    if (isQ4) {
      if (hasMaddubs()) addQ4<i16>(rows, offset, count, scratch, y);
      else addQ4<i32>(rows, offset, count, scratch, y);
    } else if (!isFlipped) addQ8<u8>(rows, offset, count, scratch, y);
    else if (hasMaddubs()) addQ8<i16>(rows, offset, count, scratch, y);
    else addQ8<i32>(rows, offset, count, scratch, y);
  }
}

/** Scales of a block of eight rows. */
// @inline
function scales8(rows: usize, offset: usize): v128 {
  let v = v128.load16_splat(<usize>load<u32>(rows) + offset);
  v = v128.load16_lane(<usize>load<u32>(rows, 4) + offset, v, 1);
  v = v128.load16_lane(<usize>load<u32>(rows, 8) + offset, v, 2);
  v = v128.load16_lane(<usize>load<u32>(rows, 12) + offset, v, 3);
  v = v128.load16_lane(<usize>load<u32>(rows, 16) + offset, v, 4);
  v = v128.load16_lane(<usize>load<u32>(rows, 20) + offset, v, 5);
  v = v128.load16_lane(<usize>load<u32>(rows, 24) + offset, v, 6);
  return v128.load16_lane(<usize>load<u32>(rows, 28) + offset, v, 7);
}

/** Where an exponent of eight binary16 numbers has all bits or none: zero. */
// @inline
function ranks(scales: v128, step: v128, upper: v128): v128 {
  return v128.and(i16x8.add(scales, step), upper);
}

/** Coefficients of four blocks from `offset` on; behind the last one it stands in. */
function makeCoefficients(
  isFlipped: bool,
  rows: usize,
  offset: usize,
  blockBytes: usize,
  last: usize,
  h: usize,
  excess: v128,
  to: usize,
): void {
  const r0 = scales8(rows, offset);
  const r1 = scales8(rows, min<usize>(offset + blockBytes, last));
  const r2 = scales8(rows, min<usize>(offset + 2 * blockBytes, last));
  const r3 = scales8(rows, min<usize>(offset + 3 * blockBytes, last));
  const h0 = v128.load(h);
  const h1 = v128.load(h, 16);
  const least = leastNormal();
  const upper = upperExponent();
  const rank = i16x8.min_u(
    i16x8.min_u(ranks(r0, least, upper), ranks(r1, least, upper)),
    i16x8.min_u(ranks(r2, least, upper), ranks(r3, least, upper)),
  );
  let a0: v128, a1: v128, a2: v128, a3: v128, b0: v128, b1: v128, b2: v128, b3: v128;
  if (i16x8.all_true(rank)) {
    const mask = halfMask();
    const bias = halfOffset();
    a0 = lowFloats(r0, mask, bias);
    b0 = highFloats(r0, mask, bias);
    a1 = lowFloats(r1, mask, bias);
    b1 = highFloats(r1, mask, bias);
    a2 = lowFloats(r2, mask, bias);
    b2 = highFloats(r2, mask, bias);
    a3 = lowFloats(r3, mask, bias);
    b3 = highFloats(r3, mask, bias);
  } else {
    a0 = halfToFloat4(i32x4.extend_low_i16x8_u(r0));
    b0 = halfToFloat4(i32x4.extend_high_i16x8_u(r0));
    a1 = halfToFloat4(i32x4.extend_low_i16x8_u(r1));
    b1 = halfToFloat4(i32x4.extend_high_i16x8_u(r1));
    a2 = halfToFloat4(i32x4.extend_low_i16x8_u(r2));
    b2 = halfToFloat4(i32x4.extend_high_i16x8_u(r2));
    a3 = halfToFloat4(i32x4.extend_low_i16x8_u(r3));
    b3 = halfToFloat4(i32x4.extend_high_i16x8_u(r3));
  }
  a0 = f32x4.mul(a0, h0);
  b0 = f32x4.mul(b0, h1);
  a1 = f32x4.mul(a1, h0);
  b1 = f32x4.mul(b1, h1);
  a2 = f32x4.mul(a2, h0);
  b2 = f32x4.mul(b2, h1);
  a3 = f32x4.mul(a3, h0);
  b3 = f32x4.mul(b3, h1);
  // the largest of each block, side by side
  const m0 = larger(a0, b0);
  const m1 = larger(a1, b1);
  const m2 = larger(a2, b2);
  const m3 = larger(a3, b3);
  const m01 = i32x4.max_u(
    i8x16.shuffle(m0, m1, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
    i8x16.shuffle(m0, m1, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31),
  );
  const m23 = i32x4.max_u(
    i8x16.shuffle(m2, m3, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
    i8x16.shuffle(m2, m3, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31),
  );
  const top = i32x4.max_u(
    i8x16.shuffle(m01, m23, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
    i8x16.shuffle(m01, m23, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31),
  );
  const largest = i32x4.shr_u(top, 1);
  // as for activations: what has no reciprocal counts as zero, and NaN makes the step NaN
  const isNothing = f32x4.lt(largest, leastInvertible());
  const most = largestCode();
  const inverse = v128.andnot(f32x4.div(most, largest), isNothing);
  v128.store(to, v128.andnot(f32x4.div(largest, most), isNothing), STEPS);
  const magic = roundingMagic();
  let i = i8x16.shuffle(inverse, inverse, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
  const c0 = i16x8.narrow_i32x4_s(rounded(a0, i, magic), rounded(b0, i, magic));
  i = i8x16.shuffle(inverse, inverse, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
  const c1 = i16x8.narrow_i32x4_s(rounded(a1, i, magic), rounded(b1, i, magic));
  i = i8x16.shuffle(inverse, inverse, 8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11);
  const c2 = i16x8.narrow_i32x4_s(rounded(a2, i, magic), rounded(b2, i, magic));
  i = i8x16.shuffle(inverse, inverse, 12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15);
  const c3 = i16x8.narrow_i32x4_s(rounded(a3, i, magic), rounded(b3, i, magic));
  const c01 = i8x16.narrow_i16x8_s(c0, c1);
  const c23 = i8x16.narrow_i16x8_s(c2, c3);
  let e01: v128, e23: v128;
  const none = i32x4.splat(0);
  if (isFlipped) {
    e01 = i32x4.sub(none, storeFlips(c01, excess, to, FLIPS));
    e23 = i32x4.sub(none, storeFlips(c23, excess, to + 16, FLIPS));
  } else {
    v128.store(to, c01);
    v128.store(to, c23, 16);
    e01 = dot(c01, excess, none);
    e23 = dot(c23, excess, none);
  }
  const even = i8x16.shuffle(e01, e23, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  const odd = i8x16.shuffle(e01, e23, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  v128.store(to, i32x4.sub(i32x4.sub(none, even), odd), START);
}

/** Adds `count` blocks of q8_0, four at most: 16 columns after 16. T as for `dotCodes`. */
function addQ8<T>(rows: usize, offset: usize, count: i32, known: usize, y: usize): void {
  const flip = flipSigns();
  const ones = onePairs();
  let p0 = <usize>load<u32>(rows) + offset;
  let p1 = <usize>load<u32>(rows, 4) + offset;
  let p2 = <usize>load<u32>(rows, 8) + offset;
  let p3 = <usize>load<u32>(rows, 12) + offset;
  let p4 = <usize>load<u32>(rows, 16) + offset;
  let p5 = <usize>load<u32>(rows, 20) + offset;
  let p6 = <usize>load<u32>(rows, 24) + offset;
  let p7 = <usize>load<u32>(rows, 28) + offset;
  let codes = known;
  for (; count > 0; count--, codes += 8, known += 4) {
    const h = v128.load32_splat(codes);
    const i = v128.load32_splat(codes, 4);
    const m = isSigned<T>() ? v128.load32_splat(codes, FLIPS) : h;
    const n = isSigned<T>() ? v128.load32_splat(codes, FLIPS + 4) : i;
    const start = v128.load32_splat(known, START);
    const step = v128.load32_splat(known, STEPS);
    for (const stop = y + 128; y < stop; y += 64) {
      let a = v128.xor(v128.load(p0, 2), flip);
      let b = v128.xor(v128.load(p1, 2), flip);
      let c = v128.xor(v128.load(p2, 2), flip);
      let d = v128.xor(v128.load(p3, 2), flip);
      let ab = lowBytes(a, b);
      let cd = lowBytes(c, d);
      let s0 = dotCodes<T>(h, m, lowPairs(ab, cd), start, ones);
      let s1 = dotCodes<T>(h, m, highPairs(ab, cd), start, ones);
      ab = highBytes(a, b);
      cd = highBytes(c, d);
      let s2 = dotCodes<T>(h, m, lowPairs(ab, cd), start, ones);
      let s3 = dotCodes<T>(h, m, highPairs(ab, cd), start, ones);
      a = v128.xor(v128.load(p4, 2), flip);
      b = v128.xor(v128.load(p5, 2), flip);
      c = v128.xor(v128.load(p6, 2), flip);
      d = v128.xor(v128.load(p7, 2), flip);
      ab = lowBytes(a, b);
      cd = lowBytes(c, d);
      s0 = dotCodes<T>(i, n, lowPairs(ab, cd), s0, ones);
      s1 = dotCodes<T>(i, n, highPairs(ab, cd), s1, ones);
      ab = highBytes(a, b);
      cd = highBytes(c, d);
      s2 = dotCodes<T>(i, n, lowPairs(ab, cd), s2, ones);
      s3 = dotCodes<T>(i, n, highPairs(ab, cd), s3, ones);
      v128.store(y, scaled(s0, step, v128.load(y)));
      v128.store(y, scaled(s1, step, v128.load(y, 16)), 16);
      v128.store(y, scaled(s2, step, v128.load(y, 32)), 32);
      v128.store(y, scaled(s3, step, v128.load(y, 48)), 48);
      p0 += 16;
      p1 += 16;
      p2 += 16;
      p3 += 16;
      p4 += 16;
      p5 += 16;
      p6 += 16;
      p7 += 16;
    }
    p0 += 2;
    p1 += 2;
    p2 += 2;
    p3 += 2;
    p4 += 2;
    p5 += 2;
    p6 += 2;
    p7 += 2;
  }
}

/** The same for q4_0: columns 4 i and 16 + 4 i side by side. By pairs where T is i16. */
function addQ4<T>(rows: usize, offset: usize, count: i32, known: usize, y: usize): void {
  const low = nibbleMask();
  const ones = onePairs();
  let p0 = <usize>load<u32>(rows) + offset;
  let p1 = <usize>load<u32>(rows, 4) + offset;
  let p2 = <usize>load<u32>(rows, 8) + offset;
  let p3 = <usize>load<u32>(rows, 12) + offset;
  let p4 = <usize>load<u32>(rows, 16) + offset;
  let p5 = <usize>load<u32>(rows, 20) + offset;
  let p6 = <usize>load<u32>(rows, 24) + offset;
  let p7 = <usize>load<u32>(rows, 28) + offset;
  let codes = known;
  for (; count > 0; count--, codes += 8, known += 4, y += 128) {
    const h = v128.load32_splat(codes);
    const i = v128.load32_splat(codes, 4);
    const start = v128.load32_splat(known, START);
    const step = v128.load32_splat(known, STEPS);
    let ab = lowBytes(v128.load(p0, 2), v128.load(p1, 2));
    let cd = lowBytes(v128.load(p2, 2), v128.load(p3, 2));
    let ef = lowBytes(v128.load(p4, 2), v128.load(p5, 2));
    let gh = lowBytes(v128.load(p6, 2), v128.load(p7, 2));
    let first = lowPairs(ab, cd);
    let last = lowPairs(ef, gh);
    let sums = dotTwo<T>(h, lowNibbles(first, low), i, lowNibbles(last, low), start, ones);
    v128.store(y, scaled(sums, step, v128.load(y)));
    sums = dotTwo<T>(h, highNibbles(first, low), i, highNibbles(last, low), start, ones);
    v128.store(y, scaled(sums, step, v128.load(y, 64)), 64);
    first = highPairs(ab, cd);
    last = highPairs(ef, gh);
    sums = dotTwo<T>(h, lowNibbles(first, low), i, lowNibbles(last, low), start, ones);
    v128.store(y, scaled(sums, step, v128.load(y, 16)), 16);
    sums = dotTwo<T>(h, highNibbles(first, low), i, highNibbles(last, low), start, ones);
    v128.store(y, scaled(sums, step, v128.load(y, 80)), 80);
    ab = highBytes(v128.load(p0, 2), v128.load(p1, 2));
    cd = highBytes(v128.load(p2, 2), v128.load(p3, 2));
    ef = highBytes(v128.load(p4, 2), v128.load(p5, 2));
    gh = highBytes(v128.load(p6, 2), v128.load(p7, 2));
    first = lowPairs(ab, cd);
    last = lowPairs(ef, gh);
    sums = dotTwo<T>(h, lowNibbles(first, low), i, lowNibbles(last, low), start, ones);
    v128.store(y, scaled(sums, step, v128.load(y, 32)), 32);
    sums = dotTwo<T>(h, highNibbles(first, low), i, highNibbles(last, low), start, ones);
    v128.store(y, scaled(sums, step, v128.load(y, 96)), 96);
    first = highPairs(ab, cd);
    last = highPairs(ef, gh);
    sums = dotTwo<T>(h, lowNibbles(first, low), i, lowNibbles(last, low), start, ones);
    v128.store(y, scaled(sums, step, v128.load(y, 48)), 48);
    sums = dotTwo<T>(h, highNibbles(first, low), i, highNibbles(last, low), start, ones);
    v128.store(y, scaled(sums, step, v128.load(y, 112)), 112);
    p0 += 18;
    p1 += 18;
    p2 += 18;
    p3 += 18;
    p4 += 18;
    p5 += 18;
    p6 += 18;
    p7 += 18;
  }
}
