/**
 * Products of 8-bit activations with gate or up of neurons whose rows are ordered as neuron-records.ts has it: the numbers of
 * row-dots.ts, bit by bit. A vector has four columns of each of four blocks, so that what a dot product gives are sums of blocks.
 * Eight rows go side by side, every one read by a single load in a loop: processors fetch ahead load by load, and for few of them.
 * Relaxed builds only.
 */
import { halfMask, largestCode, leastInvertible, nibbleMask, plainFactor, roundingMagic } from './constants';
import { dot } from './dots8';
import { high } from './dots8-blocks';
import { highTwos, highWords, lowTwos, lowWords } from './interleave';
import { nearest } from './quantise';
import { sideSums } from './row-dots';
import { fma } from './simd';

// four blocks of activations: vectors [8] with four columns of each block, what scales are multiplied by, what sums begin with
const FACTORS: usize = 128;
const STARTS: usize = 144;
/** Bytes of four blocks of activations. */
const LANES_BYTES: usize = 160;

/** Activations as `recordDots` takes them, from the f32 numbers at `x`; whole fours of blocks. The numbers of `quantiseBlock`. */
export function quantiseLanes(isQ4: bool, x: usize, numBlocks: i32, to: usize): void {
  const magic = roundingMagic();
  const factor = plainFactor();
  const minus = i32x4.splat(isQ4 ? -8 : -128);
  for (let four = numBlocks >> 2; four > 0; four--, x += 512, to += LANES_BYTES) {
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
    for (let at: usize = 0; at < FACTORS; at += 16) {
      const a = nearest(v128.load(x + at), v128.load32_splat(to, STARTS), magic);
      const b = nearest(v128.load(x + at, 128), v128.load32_splat(to, STARTS + 4), magic);
      const c = nearest(v128.load(x + at, 256), v128.load32_splat(to, STARTS + 8), magic);
      const d = nearest(v128.load(x + at, 384), v128.load32_splat(to, STARTS + 12), magic);
      s0 = i32x4.add(s0, a);
      s1 = i32x4.add(s1, b);
      s2 = i32x4.add(s2, c);
      s3 = i32x4.add(s3, d);
      v128.store(to + at, i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(a, b), i16x8.narrow_i32x4_s(c, d)));
    }
    v128.store(to, i32x4.mul(sideSums(s0, s1, s2, s3), minus), STARTS);
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
export function lanesBytes(numBlocks: i32): usize {
  return (<usize>numBlocks >> 2) * LANES_BYTES;
}

/** The sums of eight rows at `sums[row][4]`, to be finished by `fourSums`. They begin `offset` bytes behind the addresses at `records`. */
export function recordDots(isQ4: bool, records: usize, offset: usize, x: usize, numBlocks: i32, sums: usize): void {
  const none = f32x4.splat(0);
  for (let at = sums; at < sums + 128; at += 32) {
    v128.store(at, none);
    v128.store(at, none, 16);
  }
  const end = x + (<usize>numBlocks >> 2) * LANES_BYTES;
  if (isQ4) dotsQ4(records, offset, x, end, sums);
  else dotsQ8(records, offset, x, end, sums);
}

/** Adds sums of four blocks times their four scales at `p`. */
@inline
function addFour(sums: usize, blocks: v128, p: usize, mask: v128, factors: v128): void {
  const scales = v128.and(i32x4.shl(v128.load16x4_s(p), 13), mask);
  v128.store(sums, fma(f32x4.convert_i32x4_s(blocks), f32x4.mul(scales, factors), v128.load(sums)));
}

function dotsQ8(records: usize, offset: usize, x: usize, end: usize, sums: usize): void {
  const mask = halfMask();
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
      a = dot(v, v128.load(p0, 24), dot(u, v128.load(p0, 8), a));
      b = dot(v, v128.load(p1, 24), dot(u, v128.load(p1, 8), b));
      c = dot(v, v128.load(p2, 24), dot(u, v128.load(p2, 8), c));
      d = dot(v, v128.load(p3, 24), dot(u, v128.load(p3, 8), d));
      e = dot(v, v128.load(p4, 24), dot(u, v128.load(p4, 8), e));
      f = dot(v, v128.load(p5, 24), dot(u, v128.load(p5, 8), f));
      g = dot(v, v128.load(p6, 24), dot(u, v128.load(p6, 8), g));
      h = dot(v, v128.load(p7, 24), dot(u, v128.load(p7, 8), h));
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
    x += LANES_BYTES - FACTORS;
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

/** Adds two vectors of codes: low nibbles times u and w, high ones times v and z. */
@inline
function addNibbles(p: usize, u: v128, v: v128, w: v128, z: v128, low: v128, blocks: v128): v128 {
  const first = v128.load(p, 8);
  const second = v128.load(p, 24);
  blocks = dot(v, high(first, low), dot(u, v128.and(first, low), blocks));
  return dot(z, high(second, low), dot(w, v128.and(second, low), blocks));
}

function dotsQ4(records: usize, offset: usize, x: usize, end: usize, sums: usize): void {
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
    let a = v128.load(x, STARTS);
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
      a = addNibbles(p0, u, v, w, z, low, a);
      b = addNibbles(p1, u, v, w, z, low, b);
      c = addNibbles(p2, u, v, w, z, low, c);
      d = addNibbles(p3, u, v, w, z, low, d);
      e = addNibbles(p4, u, v, w, z, low, e);
      f = addNibbles(p5, u, v, w, z, low, f);
      g = addNibbles(p6, u, v, w, z, low, g);
      h = addNibbles(p7, u, v, w, z, low, h);
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
    addFour(sums, a, p0 - 64, mask, factors);
    addFour(sums + 16, b, p1 - 64, mask, factors);
    addFour(sums + 32, c, p2 - 64, mask, factors);
    addFour(sums + 48, d, p3 - 64, mask, factors);
    addFour(sums + 64, e, p4 - 64, mask, factors);
    addFour(sums + 80, f, p5 - 64, mask, factors);
    addFour(sums + 96, g, p6 - 64, mask, factors);
    addFour(sums + 112, h, p7 - 64, mask, factors);
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
