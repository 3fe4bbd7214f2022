/**
 * One token and one packed group without expanding it first: what decoding spends its time on. Relaxed builds only;
 * q8_0 needs a dot product that is exact for codes above 127. Every function returns the four sums.
 */
import { byteMask, halfFactor, halfMask, nibbleMask, pairMask } from './constants';
import { Q4_0, Q4_K, Q5_K, Q8_0 } from './decode';
import { dot } from './dots8';
import { minsK, scales4, scalesK } from './expand';
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
  const mask = halfMask();
  const factor = halfFactor();
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++) {
    let a = v128.load32_splat(meta, META_MINUS_128);
    let b = i32x4.splat(0);
    a = dot(v128.load32_splat(x), v128.load(at, 8), a);
    b = dot(v128.load32_splat(x, 4), v128.load(at, 24), b);
    a = dot(v128.load32_splat(x, 8), v128.load(at, 40), a);
    b = dot(v128.load32_splat(x, 12), v128.load(at, 56), b);
    a = dot(v128.load32_splat(x, 16), v128.load(at, 72), a);
    b = dot(v128.load32_splat(x, 20), v128.load(at, 88), b);
    a = dot(v128.load32_splat(x, 24), v128.load(at, 104), a);
    b = dot(v128.load32_splat(x, 28), v128.load(at, 120), b);
    const scale = f32x4.mul(scales4(at, mask, factor), v128.load32_splat(meta));
    sums = fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), scale, sums);
    at += 136;
    x += 32;
    meta += META_BYTES;
  }
  return sums;
}

function high(v: v128, mask: v128): v128 {
  return v128.and(i16x8.shr_u(v, 4), mask);
}

function dotsQ4(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  const mask = halfMask();
  const factor = halfFactor();
  const low = nibbleMask();
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++) {
    let a = v128.load32_splat(meta, META_MINUS_8);
    let b = i32x4.splat(0);
    let v = v128.load(at, 8);
    a = dot(v128.load32_splat(x), v128.and(v, low), a);
    b = dot(v128.load32_splat(x, 16), high(v, low), b);
    v = v128.load(at, 24);
    a = dot(v128.load32_splat(x, 4), v128.and(v, low), a);
    b = dot(v128.load32_splat(x, 20), high(v, low), b);
    v = v128.load(at, 40);
    a = dot(v128.load32_splat(x, 8), v128.and(v, low), a);
    b = dot(v128.load32_splat(x, 24), high(v, low), b);
    v = v128.load(at, 56);
    a = dot(v128.load32_splat(x, 12), v128.and(v, low), a);
    b = dot(v128.load32_splat(x, 28), high(v, low), b);
    const scale = f32x4.mul(scales4(at, mask, factor), v128.load32_splat(meta));
    sums = fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), scale, sums);
    at += 72;
    x += 32;
    meta += META_BYTES;
  }
  return sums;
}

/** q4_K: two sub-blocks per pair of 32 bytes of nibbles. */
function dotsK(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  const low = nibbleMask();
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++) {
    const d = scales4(at, halfMask(), halfFactor());
    const dmin = f32x4.neg(scales4(at + 8, halfMask(), halfFactor()));
    let codes = at + 64;
    for (let pair = 0; pair < 4; pair++) {
      let a = i32x4.splat(0);
      let b = a;
      for (let j = 0; j < 2; j++) {
        let v = v128.load(codes);
        a = dot(v128.load32_splat(x), v128.and(v, low), a);
        b = dot(v128.load32_splat(x, 32), high(v, low), b);
        v = v128.load(codes, 16);
        a = dot(v128.load32_splat(x, 4), v128.and(v, low), a);
        b = dot(v128.load32_splat(x, 36), high(v, low), b);
        v = v128.load(codes, 32);
        a = dot(v128.load32_splat(x, 8), v128.and(v, low), a);
        b = dot(v128.load32_splat(x, 40), high(v, low), b);
        v = v128.load(codes, 48);
        a = dot(v128.load32_splat(x, 12), v128.and(v, low), a);
        b = dot(v128.load32_splat(x, 44), high(v, low), b);
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
  const mask = byteMask();
  const shift = (pair & 1) << 4;
  const scales = i32x4.shr_u(scalesK(at, pair >= 2), shift);
  const mins = i32x4.shr_u(minsK(at, pair >= 2), shift);
  const first = f32x4.convert_i32x4_s(v128.and(scales, mask));
  const second = f32x4.convert_i32x4_s(v128.and(i32x4.shr_u(scales, 8), mask));
  const scaleA = f32x4.mul(f32x4.mul(d, first), v128.load32_splat(meta));
  const scaleB = f32x4.mul(f32x4.mul(d, second), v128.load32_splat(meta, META_BYTES));
  sums = fma(f32x4.convert_i32x4_s(a), scaleA, sums);
  sums = fma(f32x4.convert_i32x4_s(b), scaleB, sums);
  const minA = f32x4.convert_i32x4_s(v128.and(mins, mask));
  const minB = f32x4.convert_i32x4_s(v128.and(i32x4.shr_u(mins, 8), mask));
  let offset = f32x4.mul(minA, v128.load32_splat(meta, META_SUM));
  offset = fma(minB, v128.load32_splat(meta, META_BYTES + META_SUM), offset);
  return fma(dmin, offset, sums);
}

function dotsQ5K(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  const low = nibbleMask();
  const sixteen = v128.and(pairMask(), i32x4.splat(0x10101010));
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++) {
    const d = scales4(at, halfMask(), halfFactor());
    const dmin = f32x4.neg(scales4(at + 8, halfMask(), halfFactor()));
    let codes = at + 192;
    for (let pair = 0; pair < 4; pair++) {
      const bitA = i8x16.splat((<i8>1) << (<i8>(pair << 1)));
      const bitB = i8x16.add(bitA, bitA);
      let a = i32x4.splat(0);
      let b = a;
      let fifths = at + 64;
      for (let j = 0; j < 4; j++) {
        let v = v128.load(codes);
        let bits = v128.load(fifths);
        let five = v128.and(i8x16.eq(v128.and(bits, bitA), bitA), sixteen);
        a = dot(v128.load32_splat(x), v128.or(v128.and(v, low), five), a);
        five = v128.and(i8x16.eq(v128.and(bits, bitB), bitB), sixteen);
        b = dot(v128.load32_splat(x, 32), v128.or(high(v, low), five), b);
        v = v128.load(codes, 16);
        bits = v128.load(fifths, 16);
        five = v128.and(i8x16.eq(v128.and(bits, bitA), bitA), sixteen);
        a = dot(v128.load32_splat(x, 4), v128.or(v128.and(v, low), five), a);
        five = v128.and(i8x16.eq(v128.and(bits, bitB), bitB), sixteen);
        b = dot(v128.load32_splat(x, 36), v128.or(high(v, low), five), b);
        codes += 32;
        fifths += 32;
        x += 8;
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
  const low = nibbleMask();
  const pair = pairMask();
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++) {
    const d = scales4(at, halfMask(), halfFactor());
    for (let half: usize = 0; half < 2; half++) {
      for (let part: usize = 0; part < 2; part++) {
        const at4 = meta + (part << 2);
        let a = v128.load32_splat(at4, META_MINUS_32);
        let b = v128.load32_splat(at4, META_BYTES + META_MINUS_32);
        let c = v128.load32_splat(at4, 2 * META_BYTES + META_MINUS_32);
        let e = v128.load32_splat(at4, 3 * META_BYTES + META_MINUS_32);
        let codes = at + 72 + (half << 8) + (part << 6);
        let pairs = at + 584 + (half << 7) + (part << 6);
        let y = x + (part << 4);
        for (let j = 0; j < 2; j++) {
          let u = v128.load(codes);
          let v = v128.load(codes, 128);
          let bits = v128.load(pairs);
          a = dot(v128.load32_splat(y), v128.or(v128.and(u, low), v128.and(i16x8.shl(bits, 4), pair)), a);
          b = dot(v128.load32_splat(y, 32), v128.or(v128.and(v, low), v128.and(i16x8.shl(bits, 2), pair)), b);
          c = dot(v128.load32_splat(y, 64), v128.or(high(u, low), v128.and(bits, pair)), c);
          e = dot(v128.load32_splat(y, 96), v128.or(high(v, low), v128.and(i16x8.shr_u(bits, 2), pair)), e);
          u = v128.load(codes, 16);
          v = v128.load(codes, 144);
          bits = v128.load(pairs, 16);
          a = dot(v128.load32_splat(y, 4), v128.or(v128.and(u, low), v128.and(i16x8.shl(bits, 4), pair)), a);
          b = dot(v128.load32_splat(y, 36), v128.or(v128.and(v, low), v128.and(i16x8.shl(bits, 2), pair)), b);
          c = dot(v128.load32_splat(y, 68), v128.or(high(u, low), v128.and(bits, pair)), c);
          e = dot(v128.load32_splat(y, 100), v128.or(high(v, low), v128.and(i16x8.shr_u(bits, 2), pair)), e);
          codes += 32;
          pairs += 32;
          y += 8;
        }
        // sub-block of quarter q, part p of this half: half * 8 + q * 2 + p, a byte of its row's word
        const shift = 24 - (<i32>part << 3);
        const first = v128.load(at + (half << 5), 8);
        const second = v128.load(at + (half << 5), 24);
        sums = addScaled(a, i32x4.shl(first, shift), d, meta, sums);
        sums = addScaled(b, i32x4.shl(first, shift - 16), d, meta + META_BYTES, sums);
        sums = addScaled(c, i32x4.shl(second, shift), d, meta + 2 * META_BYTES, sums);
        sums = addScaled(e, i32x4.shl(second, shift - 16), d, meta + 3 * META_BYTES, sums);
      }
      x += 128;
      meta += 4 * META_BYTES;
    }
    at += 840;
  }
  return sums;
}

/** `top` has the signed scales of four rows in the upper bytes of its lanes. */
function addScaled(a: v128, top: v128, d: v128, meta: usize, sums: v128): v128 {
  const scales = f32x4.convert_i32x4_s(i32x4.shr_s(top, 24));
  return fma(f32x4.convert_i32x4_s(a), f32x4.mul(f32x4.mul(d, scales), v128.load32_splat(meta)), sums);
}
