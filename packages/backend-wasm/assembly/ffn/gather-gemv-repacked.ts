/**
 * Products of 8-bit activations with gate or up of neurons whose rows are ordered as repack-neurons.ts has it: the numbers of
 * gather-gemv.ts, bit by bit. A vector has four columns of each of four blocks, so that what a dot product gives are sums of blocks.
 * Eight rows go side by side, every one read by a single load in a loop: processors fetch ahead load by load, and for few of them.
 * Relaxed builds only.
 */
import {
  flipSigns,
  halfMask,
  largestCode,
  leastInvertible,
  nibbleMask,
  onePairs,
  plainFactor,
  roundingMagic,
} from '../simd/constants';
import { addPairs, hasMaddubs, dot, dotCodes, pairs, hasUsdot } from '../gemm/int8-dot';
import { highTwos, highWords, lowTwos, lowWords } from '../simd/interleave';
import { nearest, storeFlips } from '../quant/quantize-activations';
import { sideSums } from './gather-gemv';
import { fma, highNibbles, lowNibbles } from '../simd/vector';

// four blocks of activations: vectors [8] with four columns of each block, what scales are multiplied by, what sums begin with; for q8_0, where
// codes are flipped, vectors are magnitudes, and flips [8] follow
const FACTORS: usize = 128;
const STARTS: usize = 144;
const LANES_BYTES: usize = 160;
const FLIPS: usize = 160;
const FLIPPED_BYTES: usize = 288;

/** Bytes of four blocks of activations. */
function fourBytes(isQ4: bool): usize {
  return isQ4 || hasUsdot() ? LANES_BYTES : FLIPPED_BYTES;
}

/** Activations as `recordDots` takes them, from the f32 numbers at `x`; whole fours of blocks. The numbers of `quantiseBlock`. */
export function quantiseLanes(isQ4: bool, x: usize, numBlocks: i32, to: usize): void {
  const magic = roundingMagic();
  const factor = plainFactor();
  const minus = i32x4.splat(isQ4 ? -8 : -128);
  const bytes = fourBytes(isQ4);
  const isFlipped = bytes === FLIPPED_BYTES;
  const sign = flipSigns();
  for (let four = numBlocks >> 2; four > 0; four--, x += 512, to += bytes) {
    const largest = sideMax(largest4(x), largest4(x + 128), largest4(x + 256), largest4(x + 384));
    // values whose reciprocal leaves the range count as zero; NaN makes the scale NaN, and with it every product
    const isNothing = f32x4.lt(largest, leastInvertible());
    const inverses = v128.andnot(f32x4.div(largestCode(), largest), isNothing);
    v128.store(to, f32x4.mul(v128.andnot(f32x4.div(largest, largestCode()), isNothing), factor), FACTORS);
    v128.store(to, inverses, STARTS);
    let s0 = i32x4.splat(0);
    let s1 = s0;
    let s2 = s0;
    let s3 = s0;
    let lacking = s0;
    for (let at: usize = 0; at < FACTORS; at += 16) {
      const a = nearest(v128.load(x + at), v128.load32_splat(to, STARTS), magic);
      const b = nearest(v128.load(x + at, 128), v128.load32_splat(to, STARTS + 4), magic);
      const c = nearest(v128.load(x + at, 256), v128.load32_splat(to, STARTS + 8), magic);
      const d = nearest(v128.load(x + at, 384), v128.load32_splat(to, STARTS + 12), magic);
      s0 = i32x4.add(s0, a);
      s1 = i32x4.add(s1, b);
      s2 = i32x4.add(s2, c);
      s3 = i32x4.add(s3, d);
      const codes = i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(a, b), i16x8.narrow_i32x4_s(c, d));
      if (isFlipped) lacking = i32x4.add(lacking, storeFlips(codes, sign, to + at, FLIPS));
      else v128.store(to + at, codes);
    }
    v128.store(to, isFlipped ? lacking : i32x4.mul(sideSums(s0, s1, s2, s3), minus), STARTS);
  }
}

/** The largest magnitudes of a block in each of four lanes, as integers: NaN is larger than anything. */
function largest4(x: usize): v128 {
  const magnitude = i32x4.splat(0x7fffffff);
  let top = v128.and(v128.load(x), magnitude);
  for (let at: usize = 16; at < 128; at += 16) top = i32x4.max_s(top, v128.and(v128.load(x + at), magnitude));
  return top;
}

/** The largest lanes of four vectors, side by side. */
function sideMax(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = i32x4.max_s(lowWords(a, b), highWords(a, b));
  const cd = i32x4.max_s(lowWords(c, d), highWords(c, d));
  return i32x4.max_s(lowTwos(ab, cd), highTwos(ab, cd));
}

/** Bytes of activations. */
export function lanesBytes(isQ4: bool, numBlocks: i32): usize {
  return (<usize>numBlocks >> 2) * fourBytes(isQ4);
}

/** The sums of eight rows at `sums[row][4]`, to be finished by `fourSums`. They begin `offset` bytes behind the addresses at `records`. */
export function recordDots(isQ4: bool, records: usize, offset: usize, x: usize, numBlocks: i32, sums: usize): void {
  const none = f32x4.splat(0);
  for (let at = sums; at < sums + 128; at += 32) {
    v128.store(at, none);
    v128.store(at, none, 16);
  }
  const end = x + lanesBytes(isQ4, numBlocks);
  if (isQ4) {
    if (hasMaddubs()) dotsQ4<i16>(records, offset, x, end, sums);
    else dotsQ4<i32>(records, offset, x, end, sums);
  } else if (hasUsdot()) dotsQ8<u8>(records, offset, x, end, sums);
  else if (hasMaddubs()) dotsQ8<i16>(records, offset, x, end, sums);
  else dotsQ8<i32>(records, offset, x, end, sums);
}

/** Adds sums of four blocks times their four scales at `p`. */
// @inline
function addFour(sums: usize, blocks: v128, p: usize, mask: v128, factors: v128): void {
  const scales = v128.and(i32x4.shl(v128.load16x4_s(p), 13), mask);
  v128.store(sums, fma(f32x4.convert_i32x4_s(blocks), f32x4.mul(scales, factors), v128.load(sums)));
}

/** Adds two vectors of codes times those of activations. */
// @inline
function addCodes<T>(p: usize, u: v128, v: v128, f: v128, g: v128, ones: v128, blocks: v128): v128 {
  return dotCodes<T>(v, g, v128.load(p, 24), dotCodes<T>(u, f, v128.load(p, 8), blocks, ones), ones);
}

/** T as for `dotCodes`. */
function dotsQ8<T>(records: usize, offset: usize, x: usize, end: usize, sums: usize): void {
  const mask = halfMask();
  const ones = onePairs();
  let p0 = <usize>load<u32>(records) + offset;
  let p1 = <usize>load<u32>(records, 4) + offset;
  let p2 = <usize>load<u32>(records, 8) + offset;
  let p3 = <usize>load<u32>(records, 12) + offset;
  let p4 = <usize>load<u32>(records, 16) + offset;
  let p5 = <usize>load<u32>(records, 20) + offset;
  let p6 = <usize>load<u32>(records, 24) + offset;
  let p7 = <usize>load<u32>(records, 28) + offset;
  while (x < end) {
    let a = v128.load(x, STARTS);
    let b = a;
    let c = a;
    let d = a;
    let e = a;
    let f = a;
    let g = a;
    let h = a;
    for (const stop = x + FACTORS; x < stop; x += 32) {
      const u = v128.load(x);
      const v = v128.load(x, 16);
      const m = isSigned<T>() ? v128.load(x, FLIPS) : u;
      const n = isSigned<T>() ? v128.load(x, FLIPS + 16) : v;
      a = addCodes<T>(p0, u, v, m, n, ones, a);
      b = addCodes<T>(p1, u, v, m, n, ones, b);
      c = addCodes<T>(p2, u, v, m, n, ones, c);
      d = addCodes<T>(p3, u, v, m, n, ones, d);
      e = addCodes<T>(p4, u, v, m, n, ones, e);
      f = addCodes<T>(p5, u, v, m, n, ones, f);
      g = addCodes<T>(p6, u, v, m, n, ones, g);
      h = addCodes<T>(p7, u, v, m, n, ones, h);
      p0 += 32;
      p1 += 32;
      p2 += 32;
      p3 += 32;
      p4 += 32;
      p5 += 32;
      p6 += 32;
      p7 += 32;
    }
    const factors = v128.load(x);
    addFour(sums, a, p0 - 128, mask, factors);
    addFour(sums + 16, b, p1 - 128, mask, factors);
    addFour(sums + 32, c, p2 - 128, mask, factors);
    addFour(sums + 48, d, p3 - 128, mask, factors);
    addFour(sums + 64, e, p4 - 128, mask, factors);
    addFour(sums + 80, f, p5 - 128, mask, factors);
    addFour(sums + 96, g, p6 - 128, mask, factors);
    addFour(sums + 112, h, p7 - 128, mask, factors);
    x += (isSigned<T>() ? FLIPPED_BYTES : LANES_BYTES) - FACTORS;
    p0 += 8;
    p1 += 8;
    p2 += 8;
    p3 += 8;
    p4 += 8;
    p5 += 8;
    p6 += 8;
    p7 += 8;
  }
}

/**
 * Adds two vectors of codes: low nibbles times u and w, high ones times v and z. Where T is i16, blocks are sums of pairs: those of four vectors add
 * up to less than `2^15`.
 */
// @inline
function addNibbles<T>(p: usize, u: v128, v: v128, w: v128, z: v128, low: v128, blocks: v128): v128 {
  const first = v128.load(p, 8);
  const second = v128.load(p, 24);
  if (sizeof<T>() === 2) {
    blocks = i16x8.add(i16x8.add(blocks, pairs(u, lowNibbles(first, low))), pairs(v, highNibbles(first, low)));
    return i16x8.add(i16x8.add(blocks, pairs(w, lowNibbles(second, low))), pairs(z, highNibbles(second, low)));
  }
  blocks = dot(v, highNibbles(first, low), dot(u, lowNibbles(first, low), blocks));
  return dot(z, highNibbles(second, low), dot(w, lowNibbles(second, low), blocks));
}

/** Sums of four blocks, of pairs and what they begin with where T is i16. */
// @inline
function whole<T>(blocks: v128, starts: v128): v128 {
  return sizeof<T>() === 2 ? addPairs(starts, blocks, onePairs()) : blocks;
}

/** By pairs where T is i16. */
function dotsQ4<T>(records: usize, offset: usize, x: usize, end: usize, sums: usize): void {
  const mask = halfMask();
  const low = nibbleMask();
  let p0 = <usize>load<u32>(records) + offset;
  let p1 = <usize>load<u32>(records, 4) + offset;
  let p2 = <usize>load<u32>(records, 8) + offset;
  let p3 = <usize>load<u32>(records, 12) + offset;
  let p4 = <usize>load<u32>(records, 16) + offset;
  let p5 = <usize>load<u32>(records, 20) + offset;
  let p6 = <usize>load<u32>(records, 24) + offset;
  let p7 = <usize>load<u32>(records, 28) + offset;
  while (x < end) {
    const starts = v128.load(x, STARTS);
    let a = sizeof<T>() === 2 ? i16x8.splat(0) : starts;
    let b = a;
    let c = a;
    let d = a;
    let e = a;
    let f = a;
    let g = a;
    let h = a;
    for (const stop = x + FACTORS / 2; x < stop; x += 32) {
      const u = v128.load(x);
      const v = v128.load(x, 64);
      const w = v128.load(x, 16);
      const z = v128.load(x, 80);
      a = addNibbles<T>(p0, u, v, w, z, low, a);
      b = addNibbles<T>(p1, u, v, w, z, low, b);
      c = addNibbles<T>(p2, u, v, w, z, low, c);
      d = addNibbles<T>(p3, u, v, w, z, low, d);
      e = addNibbles<T>(p4, u, v, w, z, low, e);
      f = addNibbles<T>(p5, u, v, w, z, low, f);
      g = addNibbles<T>(p6, u, v, w, z, low, g);
      h = addNibbles<T>(p7, u, v, w, z, low, h);
      p0 += 32;
      p1 += 32;
      p2 += 32;
      p3 += 32;
      p4 += 32;
      p5 += 32;
      p6 += 32;
      p7 += 32;
    }
    const factors = v128.load(x, FACTORS / 2);
    addFour(sums, whole<T>(a, starts), p0 - 64, mask, factors);
    addFour(sums + 16, whole<T>(b, starts), p1 - 64, mask, factors);
    addFour(sums + 32, whole<T>(c, starts), p2 - 64, mask, factors);
    addFour(sums + 48, whole<T>(d, starts), p3 - 64, mask, factors);
    addFour(sums + 64, whole<T>(e, starts), p4 - 64, mask, factors);
    addFour(sums + 80, whole<T>(f, starts), p5 - 64, mask, factors);
    addFour(sums + 96, whole<T>(g, starts), p6 - 64, mask, factors);
    addFour(sums + 112, whole<T>(h, starts), p7 - 64, mask, factors);
    x += LANES_BYTES - FACTORS / 2;
    p0 += 8;
    p1 += 8;
    p2 += 8;
    p3 += 8;
    p4 += 8;
    p5 += 8;
    p6 += 8;
    p7 += 8;
  }
}
