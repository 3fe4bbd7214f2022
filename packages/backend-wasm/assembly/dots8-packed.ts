/**
 * One token and one packed group without expanding it first: what decoding spends its time on. Relaxed builds only;
 * q8_0 needs a dot product that is exact for codes above 127. Every function returns the four sums.
 */
import { Q4_0, Q4_K, Q5_K, Q8_0 } from './decode';
import { dot } from './dots8';
import { fifthBit, lane8, minsK, scales4, scalesK, signed8 } from './expand';
import { META_BYTES, META_MINUS_128, META_MINUS_32, META_MINUS_8, META_SUM } from './quantise';
import { fma } from './simd';

export function packedDots(dtype: i32, group: usize, numInputs: i32, x: usize, meta: usize): v128 {
  if (dtype == Q8_0) return dotsQ8(group, numInputs >> 5, x, meta);
  if (dtype == Q4_0) return dotsQ4(group, numInputs >> 5, x, meta);
  if (dtype == Q4_K) return dotsK(group, numInputs >> 8, x, meta);
  if (dtype == Q5_K) return dotsQ5K(group, numInputs >> 8, x, meta);
  return dotsQ6K(group, numInputs >> 8, x, meta);
}

function dotsQ8(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++) {
    let a = v128.load32_splat(meta, META_MINUS_128);
    a = dot(v128.load32_splat(x), v128.load(at, 8), a);
    a = dot(v128.load32_splat(x, 4), v128.load(at, 24), a);
    a = dot(v128.load32_splat(x, 8), v128.load(at, 40), a);
    a = dot(v128.load32_splat(x, 12), v128.load(at, 56), a);
    a = dot(v128.load32_splat(x, 16), v128.load(at, 72), a);
    a = dot(v128.load32_splat(x, 20), v128.load(at, 88), a);
    a = dot(v128.load32_splat(x, 24), v128.load(at, 104), a);
    a = dot(v128.load32_splat(x, 28), v128.load(at, 120), a);
    sums = fma(f32x4.convert_i32x4_s(a), f32x4.mul(scales4(at), v128.load32_splat(meta)), sums);
    at += 136;
    x += 32;
    meta += META_BYTES;
  }
  return sums;
}

function low(v: v128): v128 {
  return v128.and(v, i8x16.splat(15));
}
function high(v: v128): v128 {
  return v128.and(i16x8.shr_u(v, 4), i8x16.splat(15));
}

function dotsQ4(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++) {
    let a = v128.load32_splat(meta, META_MINUS_8);
    let v = v128.load(at, 8);
    a = dot(v128.load32_splat(x), low(v), a);
    a = dot(v128.load32_splat(x, 16), high(v), a);
    v = v128.load(at, 24);
    a = dot(v128.load32_splat(x, 4), low(v), a);
    a = dot(v128.load32_splat(x, 20), high(v), a);
    v = v128.load(at, 40);
    a = dot(v128.load32_splat(x, 8), low(v), a);
    a = dot(v128.load32_splat(x, 24), high(v), a);
    v = v128.load(at, 56);
    a = dot(v128.load32_splat(x, 12), low(v), a);
    a = dot(v128.load32_splat(x, 28), high(v), a);
    sums = fma(f32x4.convert_i32x4_s(a), f32x4.mul(scales4(at), v128.load32_splat(meta)), sums);
    at += 72;
    x += 32;
    meta += META_BYTES;
  }
  return sums;
}

/** q4_K: two sub-blocks per pair of 32 bytes of nibbles. */
function dotsK(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++) {
    const d = scales4(at);
    const dmin = f32x4.neg(scales4(at + 8));
    let codes = at + 64;
    for (let pair = 0; pair < 4; pair++) {
      let a = i32x4.splat(0);
      let b = a;
      for (let j = 0; j < 2; j++) {
        let v = v128.load(codes);
        a = dot(v128.load32_splat(x), low(v), a);
        b = dot(v128.load32_splat(x, 32), high(v), b);
        v = v128.load(codes, 16);
        a = dot(v128.load32_splat(x, 4), low(v), a);
        b = dot(v128.load32_splat(x, 36), high(v), b);
        v = v128.load(codes, 32);
        a = dot(v128.load32_splat(x, 8), low(v), a);
        b = dot(v128.load32_splat(x, 40), high(v), b);
        v = v128.load(codes, 48);
        a = dot(v128.load32_splat(x, 12), low(v), a);
        b = dot(v128.load32_splat(x, 44), high(v), b);
        codes += 64;
        x += 16;
      }
      x += 32;
      sums = addPair(at + 16, pair, a, b, d, dmin, meta, sums);
      meta += META_BYTES * 2;
    }
    at += 576;
  }
  return sums;
}

/** Adds the sums of sub-blocks 2 pair and 2 pair + 1 with their scales and mins. */
function addPair(at: usize, pair: i32, a: v128, b: v128, d: v128, dmin: v128, meta: usize, sums: v128): v128 {
  const scales = scalesK(at, pair >= 2);
  const mins = minsK(at, pair >= 2);
  const sub = (pair & 1) << 1;
  const scaleA = f32x4.mul(f32x4.mul(d, lane8(scales, sub)), v128.load32_splat(meta));
  const scaleB = f32x4.mul(f32x4.mul(d, lane8(scales, sub + 1)), v128.load32_splat(meta, META_BYTES));
  sums = fma(f32x4.convert_i32x4_s(a), scaleA, sums);
  sums = fma(f32x4.convert_i32x4_s(b), scaleB, sums);
  let offset = f32x4.mul(lane8(mins, sub), v128.load32_splat(meta, META_SUM));
  offset = fma(lane8(mins, sub + 1), v128.load32_splat(meta, META_BYTES + META_SUM), offset);
  return fma(dmin, offset, sums);
}

function dotsQ5K(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++) {
    const d = scales4(at);
    const dmin = f32x4.neg(scales4(at + 8));
    let codes = at + 192;
    for (let pair = 0; pair < 4; pair++) {
      let a = i32x4.splat(0);
      let b = a;
      for (let j: usize = 0; j < 8; j++) {
        const v = v128.load(codes);
        const bits = v128.load(at + (j << 4), 64);
        a = dot(v128.load32_splat(x), v128.or(low(v), fifthBit(bits, pair << 1)), a);
        b = dot(v128.load32_splat(x, 32), v128.or(high(v), fifthBit(bits, (pair << 1) + 1)), b);
        codes += 16;
        x += 4;
      }
      x += 32;
      sums = addPair(at + 16, pair, a, b, d, dmin, meta, sums);
      meta += META_BYTES * 2;
    }
    at += 704;
  }
  return sums;
}

/** q6_K: per half, quarters 0 and 2 share one run of nibbles, 1 and 3 the other; all four share the bit pairs. */
function dotsQ6K(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  let sums = f32x4.splat(0);
  const three = i8x16.splat(0x30);
  for (let block = 0; block < numBlocks; block++) {
    const d = scales4(at);
    for (let half: usize = 0; half < 2; half++) {
      for (let part: usize = 0; part < 2; part++) {
        let a = v128.load32_splat(meta + (part << 2), META_MINUS_32);
        let b = v128.load32_splat(meta + (part << 2), META_BYTES + META_MINUS_32);
        let c = v128.load32_splat(meta + (part << 2), 2 * META_BYTES + META_MINUS_32);
        let e = v128.load32_splat(meta + (part << 2), 3 * META_BYTES + META_MINUS_32);
        let codes = at + 72 + (half << 8) + (part << 6);
        let pairs = at + 584 + (half << 7) + (part << 6);
        let y = x + (part << 4);
        for (let j = 0; j < 4; j++) {
          const u = v128.load(codes);
          const v = v128.load(codes, 128);
          const bits = v128.load(pairs);
          a = dot(v128.load32_splat(y), v128.or(low(u), v128.and(i16x8.shl(bits, 4), three)), a);
          b = dot(v128.load32_splat(y, 32), v128.or(low(v), v128.and(i16x8.shl(bits, 2), three)), b);
          c = dot(v128.load32_splat(y, 64), v128.or(high(u), v128.and(bits, three)), c);
          e = dot(v128.load32_splat(y, 96), v128.or(high(v), v128.and(i16x8.shr_u(bits, 2), three)), e);
          codes += 16;
          pairs += 16;
          y += 4;
        }
        // sub-block of quarter q, part p of this half: half * 8 + q * 2 + p
        const first = v128.load(at + (half << 5), 8);
        const second = v128.load(at + (half << 5), 24);
        const sub = <i32>part;
        sums = addScaled(a, first, sub, d, meta, sums);
        sums = addScaled(b, first, sub + 2, d, meta + META_BYTES, sums);
        sums = addScaled(c, second, sub, d, meta + 2 * META_BYTES, sums);
        sums = addScaled(e, second, sub + 2, d, meta + 3 * META_BYTES, sums);
      }
      x += 128;
      meta += 4 * META_BYTES;
    }
    at += 840;
  }
  return sums;
}

function addScaled(a: v128, scales: v128, sub: i32, d: v128, meta: usize, sums: v128): v128 {
  const scale = f32x4.mul(f32x4.mul(d, signed8(scales, sub)), v128.load32_splat(meta));
  return fma(f32x4.convert_i32x4_s(a), scale, sums);
}
