/**
 * Weighted sums of down rows of neurons whose rows are ordered as repack-neurons.ts has it: the numbers of axpy.ts, bit by bit.
 * Scales of four blocks lie together, so that their coefficients are made side by side. Every row is read by a single load
 * in a loop, as in gather-gemv-repacked.ts. Relaxed builds only.
 */
import {
  flipSigns,
  halfMask,
  halfOffset,
  largestCode,
  leastInvertible,
  leastNormal,
  magnitudeMask,
  nibbleMask,
  onePairs,
  roundingMagic,
} from '../simd/constants';
import { hasMaddubs, dot, dotCodes, pairs, hasUsdot } from '../gemm/int8-dot';
import { highBytes, highPairs, lowBytes, lowPairs } from '../simd/interleave';
import { storeFlips } from '../quant/quantize-activations';
import { highFloats, larger, lowFloats, rounded, scaled } from './axpy-coefficients';
import { halfToFloat4, highNibbles, lowNibbles } from '../simd/vector';

/** Blocks whose coefficients are made at once. */
const FOUR: i32 = 4;
// of them: codes [4] of rows 0 to 3, codes [4] of rows 4 to 7, what sums begin with [4], steps [4]; where codes of q8_0 are flipped, codes are magnitudes,
// and flips [8] follow
const LAST: usize = 16;
const START: usize = 32;
const STEPS: usize = 48;
const FLIPS: usize = 64;
const COEFFICIENTS_BYTES: usize = 96;
/** Bytes of 32 sums, and that many of nothing. */
const BLOCK_BYTES: usize = 128;
const nothing = memory.data(128, 16);

/**
 * `to = from + ` eight rows times the eight numbers at `h`, from nothing where `from` is 0. They begin `offset` bytes behind the addresses at `records`.
 * Coefficients are made four blocks ahead: one needs the other's result for some 70 cycles, which adding up fills.
 */
export function addRecords(
  isQ4: bool,
  records: usize,
  offset: usize,
  h: usize,
  numBlocks: i32,
  from: usize,
  to: usize,
  scratch: usize,
): void {
  const isFlipped = !isQ4 && !hasUsdot();
  const excess = isQ4 ? i8x16.splat(8) : flipSigns();
  const fourBytes: usize = isQ4 ? 72 : 136;
  const step: usize = from === 0 ? 0 : BLOCK_BYTES;
  if (from === 0) from = nothing;
  let known = scratch;
  let next = scratch + COEFFICIENTS_BYTES;
  makeCoefficients(isFlipped, records, offset, h, excess, known);
  for (
    let block = 0;
    block < numBlocks;
    block += FOUR, offset += fourBytes, from += FOUR * step, to += FOUR * BLOCK_BYTES
  ) {
    if (block + FOUR < numBlocks) makeCoefficients(isFlipped, records, offset + fourBytes, h, excess, next);
    if (isQ4) {
      if (hasMaddubs()) addQ4Pairs(records, offset, known, from, step, to);
      else addQ4(records, offset, known, from, step, to);
    } else if (!isFlipped) addQ8<u8>(records, offset, known, from, step, to);
    else if (hasMaddubs()) addQ8<i16>(records, offset, known, from, step, to);
    else addQ8<i32>(records, offset, known, from, step, to);
    const last = known;
    known = next;
    next = last;
  }
}

/** Scales of four blocks of two rows. */
// @inline
function twoRows(records: usize, offset: usize): v128 {
  return v128.load64_lane(
    <usize>load<u32>(records, 4) + offset,
    v128.load64_zero(<usize>load<u32>(records) + offset),
    1,
  );
}

/** Codes of four rows, those of a block side by side. */
// @inline
function narrowed(a: v128, b: v128, c: v128, d: v128): v128 {
  const codes = i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(a, b), i16x8.narrow_i32x4_s(c, d));
  return i8x16.shuffle(codes, codes, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

/** Coefficients of four blocks, a block to each lane. */
function makeCoefficients(isFlipped: bool, records: usize, offset: usize, h: usize, excess: v128, to: usize): void {
  const r0 = twoRows(records, offset);
  const r2 = twoRows(records + 8, offset);
  const r4 = twoRows(records + 16, offset);
  const r6 = twoRows(records + 24, offset);
  const magnitude = magnitudeMask();
  const smallest = i16x8.min_u(
    i16x8.min_u(v128.and(r0, magnitude), v128.and(r2, magnitude)),
    i16x8.min_u(v128.and(r4, magnitude), v128.and(r6, magnitude)),
  );
  let a: v128, b: v128, c: v128, d: v128, e: v128, f: v128, g: v128, i: v128;
  if (!v128.any_true(i16x8.lt_s(smallest, leastNormal()))) {
    const mask = halfMask();
    const bias = halfOffset();
    a = lowFloats(r0, mask, bias);
    b = highFloats(r0, mask, bias);
    c = lowFloats(r2, mask, bias);
    d = highFloats(r2, mask, bias);
    e = lowFloats(r4, mask, bias);
    f = highFloats(r4, mask, bias);
    g = lowFloats(r6, mask, bias);
    i = highFloats(r6, mask, bias);
  } else {
    a = halfToFloat4(i32x4.extend_low_i16x8_u(r0));
    b = halfToFloat4(i32x4.extend_high_i16x8_u(r0));
    c = halfToFloat4(i32x4.extend_low_i16x8_u(r2));
    d = halfToFloat4(i32x4.extend_high_i16x8_u(r2));
    e = halfToFloat4(i32x4.extend_low_i16x8_u(r4));
    f = halfToFloat4(i32x4.extend_high_i16x8_u(r4));
    g = halfToFloat4(i32x4.extend_low_i16x8_u(r6));
    i = halfToFloat4(i32x4.extend_high_i16x8_u(r6));
  }
  a = f32x4.mul(a, v128.load32_splat(h));
  b = f32x4.mul(b, v128.load32_splat(h, 4));
  c = f32x4.mul(c, v128.load32_splat(h, 8));
  d = f32x4.mul(d, v128.load32_splat(h, 12));
  e = f32x4.mul(e, v128.load32_splat(h, 16));
  f = f32x4.mul(f, v128.load32_splat(h, 20));
  g = f32x4.mul(g, v128.load32_splat(h, 24));
  i = f32x4.mul(i, v128.load32_splat(h, 28));
  const top = i32x4.max_u(i32x4.max_u(larger(a, b), larger(c, d)), i32x4.max_u(larger(e, f), larger(g, i)));
  const largest = i32x4.shr_u(top, 1);
  // as for activations: what has no reciprocal counts as zero, and NaN makes the step NaN
  const isNothing = f32x4.lt(largest, leastInvertible());
  const most = largestCode();
  const inverse = v128.andnot(f32x4.div(most, largest), isNothing);
  v128.store(to, v128.andnot(f32x4.div(largest, most), isNothing), STEPS);
  const magic = roundingMagic();
  const first = narrowed(
    rounded(a, inverse, magic),
    rounded(b, inverse, magic),
    rounded(c, inverse, magic),
    rounded(d, inverse, magic),
  );
  const last = narrowed(
    rounded(e, inverse, magic),
    rounded(f, inverse, magic),
    rounded(g, inverse, magic),
    rounded(i, inverse, magic),
  );
  if (isFlipped) {
    v128.store(to, i32x4.add(storeFlips(first, excess, to, FLIPS), storeFlips(last, excess, to + LAST, FLIPS)), START);
    return;
  }
  v128.store(to, first);
  v128.store(to, last, LAST);
  const none = i32x4.splat(0);
  v128.store(to, i32x4.sub(none, dot(last, excess, dot(first, excess, none))), START);
}

/** Adds four blocks of q8_0: 16 columns after 16. T as for `dotCodes`. */
function addQ8<T>(records: usize, offset: usize, known: usize, from: usize, step: usize, to: usize): void {
  const ones = onePairs();
  let p0 = <usize>load<u32>(records) + offset;
  let p1 = <usize>load<u32>(records, 4) + offset;
  let p2 = <usize>load<u32>(records, 8) + offset;
  let p3 = <usize>load<u32>(records, 12) + offset;
  let p4 = <usize>load<u32>(records, 16) + offset;
  let p5 = <usize>load<u32>(records, 20) + offset;
  let p6 = <usize>load<u32>(records, 24) + offset;
  let p7 = <usize>load<u32>(records, 28) + offset;
  for (const end = to + FOUR * BLOCK_BYTES; to < end; known += 4) {
    const h = v128.load32_splat(known);
    const i = v128.load32_splat(known, LAST);
    const m = isSigned<T>() ? v128.load32_splat(known, FLIPS) : h;
    const n = isSigned<T>() ? v128.load32_splat(known, FLIPS + LAST) : i;
    const start = v128.load32_splat(known, START);
    const unit = v128.load32_splat(known, STEPS);
    for (const stop = to + BLOCK_BYTES; to < stop; to += BLOCK_BYTES / 2, from += step >> 1) {
      let a = v128.load(p0, 8);
      let b = v128.load(p1, 8);
      let c = v128.load(p2, 8);
      let d = v128.load(p3, 8);
      let ab = lowBytes(a, b);
      let cd = lowBytes(c, d);
      let s0 = dotCodes<T>(h, m, lowPairs(ab, cd), start, ones);
      let s1 = dotCodes<T>(h, m, highPairs(ab, cd), start, ones);
      ab = highBytes(a, b);
      cd = highBytes(c, d);
      let s2 = dotCodes<T>(h, m, lowPairs(ab, cd), start, ones);
      let s3 = dotCodes<T>(h, m, highPairs(ab, cd), start, ones);
      a = v128.load(p4, 8);
      b = v128.load(p5, 8);
      c = v128.load(p6, 8);
      d = v128.load(p7, 8);
      ab = lowBytes(a, b);
      cd = lowBytes(c, d);
      s0 = dotCodes<T>(i, n, lowPairs(ab, cd), s0, ones);
      s1 = dotCodes<T>(i, n, highPairs(ab, cd), s1, ones);
      ab = highBytes(a, b);
      cd = highBytes(c, d);
      s2 = dotCodes<T>(i, n, lowPairs(ab, cd), s2, ones);
      s3 = dotCodes<T>(i, n, highPairs(ab, cd), s3, ones);
      v128.store(to, scaled(s0, unit, v128.load(from)));
      v128.store(to, scaled(s1, unit, v128.load(from, 16)), 16);
      v128.store(to, scaled(s2, unit, v128.load(from, 32)), 32);
      v128.store(to, scaled(s3, unit, v128.load(from, 48)), 48);
      p0 += 16;
      p1 += 16;
      p2 += 16;
      p3 += 16;
      p4 += 16;
      p5 += 16;
      p6 += 16;
      p7 += 16;
    }
  }
}

/** The same for q4_0: columns 4 i and 16 + 4 i side by side. */
function addQ4(records: usize, offset: usize, known: usize, from: usize, step: usize, to: usize): void {
  const low = nibbleMask();
  let p0 = <usize>load<u32>(records) + offset;
  let p1 = <usize>load<u32>(records, 4) + offset;
  let p2 = <usize>load<u32>(records, 8) + offset;
  let p3 = <usize>load<u32>(records, 12) + offset;
  let p4 = <usize>load<u32>(records, 16) + offset;
  let p5 = <usize>load<u32>(records, 20) + offset;
  let p6 = <usize>load<u32>(records, 24) + offset;
  let p7 = <usize>load<u32>(records, 28) + offset;
  for (const end = to + FOUR * BLOCK_BYTES; to < end; known += 4, from += step, to += BLOCK_BYTES) {
    const h = v128.load32_splat(known);
    const i = v128.load32_splat(known, LAST);
    const start = v128.load32_splat(known, START);
    const unit = v128.load32_splat(known, STEPS);
    const a = v128.load(p0, 8);
    const b = v128.load(p1, 8);
    const c = v128.load(p2, 8);
    const d = v128.load(p3, 8);
    const e = v128.load(p4, 8);
    const f = v128.load(p5, 8);
    const g = v128.load(p6, 8);
    const j = v128.load(p7, 8);
    let ab = lowBytes(a, b);
    let cd = lowBytes(c, d);
    let ef = lowBytes(e, f);
    let gh = lowBytes(g, j);
    let first = lowPairs(ab, cd);
    let last = lowPairs(ef, gh);
    let sums = dot(i, lowNibbles(last, low), dot(h, lowNibbles(first, low), start));
    v128.store(to, scaled(sums, unit, v128.load(from)));
    sums = dot(i, highNibbles(last, low), dot(h, highNibbles(first, low), start));
    v128.store(to, scaled(sums, unit, v128.load(from, 64)), 64);
    first = highPairs(ab, cd);
    last = highPairs(ef, gh);
    sums = dot(i, lowNibbles(last, low), dot(h, lowNibbles(first, low), start));
    v128.store(to, scaled(sums, unit, v128.load(from, 16)), 16);
    sums = dot(i, highNibbles(last, low), dot(h, highNibbles(first, low), start));
    v128.store(to, scaled(sums, unit, v128.load(from, 80)), 80);
    ab = highBytes(a, b);
    cd = highBytes(c, d);
    ef = highBytes(e, f);
    gh = highBytes(g, j);
    first = lowPairs(ab, cd);
    last = lowPairs(ef, gh);
    sums = dot(i, lowNibbles(last, low), dot(h, lowNibbles(first, low), start));
    v128.store(to, scaled(sums, unit, v128.load(from, 32)), 32);
    sums = dot(i, highNibbles(last, low), dot(h, highNibbles(first, low), start));
    v128.store(to, scaled(sums, unit, v128.load(from, 96)), 96);
    first = highPairs(ab, cd);
    last = highPairs(ef, gh);
    sums = dot(i, lowNibbles(last, low), dot(h, lowNibbles(first, low), start));
    v128.store(to, scaled(sums, unit, v128.load(from, 48)), 48);
    sums = dot(i, highNibbles(last, low), dot(h, highNibbles(first, low), start));
    v128.store(to, scaled(sums, unit, v128.load(from, 112)), 112);
    p0 += 16;
    p1 += 16;
    p2 += 16;
    p3 += 16;
    p4 += 16;
    p5 += 16;
    p6 += 16;
    p7 += 16;
  }
}

/** As `addQ4` by pairs of rows: those of eight rows, and what sums begin with, add up to less than `2^15`. */
function addQ4Pairs(records: usize, offset: usize, known: usize, from: usize, step: usize, to: usize): void {
  const low = nibbleMask();
  let p0 = <usize>load<u32>(records) + offset;
  let p1 = <usize>load<u32>(records, 4) + offset;
  let p2 = <usize>load<u32>(records, 8) + offset;
  let p3 = <usize>load<u32>(records, 12) + offset;
  let p4 = <usize>load<u32>(records, 16) + offset;
  let p5 = <usize>load<u32>(records, 20) + offset;
  let p6 = <usize>load<u32>(records, 24) + offset;
  let p7 = <usize>load<u32>(records, 28) + offset;
  for (const end = to + FOUR * BLOCK_BYTES; to < end; known += 4, from += step, to += BLOCK_BYTES) {
    let s0 = v128.load16_splat(known, START);
    let s1 = s0;
    let s2 = s0;
    let s3 = s0;
    let a = v128.load(p0, 8);
    let b = v128.load(p1, 8);
    let h = v128.load16_splat(known);
    let ab = lowBytes(a, b);
    s0 = i16x8.add(s0, pairs(h, lowNibbles(ab, low)));
    s2 = i16x8.add(s2, pairs(h, highNibbles(ab, low)));
    ab = highBytes(a, b);
    s1 = i16x8.add(s1, pairs(h, lowNibbles(ab, low)));
    s3 = i16x8.add(s3, pairs(h, highNibbles(ab, low)));
    a = v128.load(p2, 8);
    b = v128.load(p3, 8);
    h = v128.load16_splat(known, 2);
    ab = lowBytes(a, b);
    s0 = i16x8.add(s0, pairs(h, lowNibbles(ab, low)));
    s2 = i16x8.add(s2, pairs(h, highNibbles(ab, low)));
    ab = highBytes(a, b);
    s1 = i16x8.add(s1, pairs(h, lowNibbles(ab, low)));
    s3 = i16x8.add(s3, pairs(h, highNibbles(ab, low)));
    a = v128.load(p4, 8);
    b = v128.load(p5, 8);
    h = v128.load16_splat(known, 16);
    ab = lowBytes(a, b);
    s0 = i16x8.add(s0, pairs(h, lowNibbles(ab, low)));
    s2 = i16x8.add(s2, pairs(h, highNibbles(ab, low)));
    ab = highBytes(a, b);
    s1 = i16x8.add(s1, pairs(h, lowNibbles(ab, low)));
    s3 = i16x8.add(s3, pairs(h, highNibbles(ab, low)));
    a = v128.load(p6, 8);
    b = v128.load(p7, 8);
    h = v128.load16_splat(known, 18);
    ab = lowBytes(a, b);
    s0 = i16x8.add(s0, pairs(h, lowNibbles(ab, low)));
    s2 = i16x8.add(s2, pairs(h, highNibbles(ab, low)));
    ab = highBytes(a, b);
    s1 = i16x8.add(s1, pairs(h, lowNibbles(ab, low)));
    s3 = i16x8.add(s3, pairs(h, highNibbles(ab, low)));
    const unit = v128.load32_splat(known, STEPS);
    v128.store(to, scaled(i32x4.extend_low_i16x8_s(s0), unit, v128.load(from)));
    v128.store(to, scaled(i32x4.extend_high_i16x8_s(s0), unit, v128.load(from, 16)), 16);
    v128.store(to, scaled(i32x4.extend_low_i16x8_s(s1), unit, v128.load(from, 32)), 32);
    v128.store(to, scaled(i32x4.extend_high_i16x8_s(s1), unit, v128.load(from, 48)), 48);
    v128.store(to, scaled(i32x4.extend_low_i16x8_s(s2), unit, v128.load(from, 64)), 64);
    v128.store(to, scaled(i32x4.extend_high_i16x8_s(s2), unit, v128.load(from, 80)), 80);
    v128.store(to, scaled(i32x4.extend_low_i16x8_s(s3), unit, v128.load(from, 96)), 96);
    v128.store(to, scaled(i32x4.extend_high_i16x8_s(s3), unit, v128.load(from, 112)), 112);
    p0 += 16;
    p1 += 16;
    p2 += 16;
    p3 += 16;
    p4 += 16;
    p5 += 16;
    p6 += 16;
    p7 += 16;
  }
}
