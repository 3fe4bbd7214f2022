/**
 * Activations in the form for gather-GEMV over repacked rows (see repack-neurons.ts). A vector has four columns of each of four
 * blocks, so that every lane of a dot product sums one block. Relaxed builds only.
 */
import { addPairs, dot, dotCodes, hasUsdot, pairs } from '../quant/int8-dot';
import { largestMagnitudes, nearest, storeSignMagnitude } from '../quant/quantize-activations';
import {
  flipSigns,
  largestCode,
  leastInvertible,
  onePairs,
  plainFactor,
  roundingMagic,
} from '../simd/constants.generated';
import { highTwos, highWords, lowTwos, lowWords } from '../simd/interleave';
import { fma, highNibbles, intLaneSums, lowNibbles } from '../simd/vector';

// four blocks of activations: vectors [8] with four columns of each block, factors of the scales, initial sums; for q8_0 without
// usdot, the vectors are magnitudes, and signs [8] follow
export const FACTORS: usize = 128;
export const STARTS: usize = 144;
export const LANES_BYTES: usize = 160;
export const SIGNS: usize = 160;
export const SIGN_MAGNITUDE_BYTES: usize = 288;

/** Bytes of four blocks of activations. */
function fourBytes(isQ4: bool): usize {
  return isQ4 || hasUsdot() ? LANES_BYTES : SIGN_MAGNITUDE_BYTES;
}

/** Bytes of `numBlocks` blocks of activations. */
export function lanesBytes(isQ4: bool, numBlocks: i32): usize {
  return (<usize>numBlocks >> 2) * fourBytes(isQ4);
}

/** Quantizes the f32 numbers at `x`, a multiple of four blocks, to the same values as `quantizeBlock`. */
export function quantizeLanes(isQ4: bool, x: usize, numBlocks: i32, to: usize): void {
  const factor = plainFactor();
  const bytes = fourBytes(isQ4);
  for (let four = numBlocks >> 2; four > 0; four--, x += 512, to += bytes) {
    const largest = laneMaxima(
      largestMagnitudes(x),
      largestMagnitudes(x + 128),
      largestMagnitudes(x + 256),
      largestMagnitudes(x + 384),
    );
    // values without a finite reciprocal count as zero; NaN makes the scale NaN, and with it every product
    const isFlushed = f32x4.lt(largest, leastInvertible());
    const inverses = v128.andnot(f32x4.div(largestCode(), largest), isFlushed);
    v128.store(to, f32x4.mul(v128.andnot(f32x4.div(largest, largestCode()), isFlushed), factor), FACTORS);
    v128.store(to, inverses, STARTS);
    v128.store(to, storeLanes(isQ4, bytes === SIGN_MAGNITUDE_BYTES, x, to), STARTS);
  }
}

/** Stores the codes of four blocks, whose inverse steps are at STARTS; returns their initial sums. */
/* @inline */ function storeLanes(isQ4: bool, hasSigns: bool, x: usize, to: usize): v128 {
  const magic = roundingMagic();
  const sign = flipSigns();
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
    if (hasSigns) lacking = i32x4.add(lacking, storeSignMagnitude(codes, sign, to + at, SIGNS));
    else v128.store(to + at, codes);
  }
  return hasSigns ? lacking : i32x4.mul(intLaneSums(s0, s1, s2, s3), i32x4.splat(isQ4 ? -8 : -128));
}

/** The largest lane of each of four vectors, as one vector. */
function laneMaxima(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = i32x4.max_s(lowWords(a, b), highWords(a, b));
  const cd = i32x4.max_s(lowWords(c, d), highWords(c, d));
  return i32x4.max_s(lowTwos(ab, cd), highTwos(ab, cd));
}

/** Adds the sums of four blocks, times their scales at `p` and `factors`, to `sums`. */
/* @inline */ export function addScaled(sums: usize, blocks: v128, p: usize, mask: v128, factors: v128): void {
  const scales = v128.and(i32x4.shl(v128.load16x4_s(p), 13), mask);
  v128.store(sums, fma(f32x4.convert_i32x4_s(blocks), f32x4.mul(scales, factors), v128.load(sums)));
}

/** Adds dot products of two vectors of codes with those of activations. */
/* @inline */ export function addQ8<T>(p: usize, u: v128, v: v128, m: v128, n: v128, ones: v128, blocks: v128): v128 {
  return dotCodes<T>(v, n, v128.load(p, 24), dotCodes<T>(u, m, v128.load(p, 8), blocks, ones), ones);
}

/**
 * Adds dot products of two vectors of nibbles: low ones times u and w, high ones times v and z. Where T is i16, `blocks` are
 * 16-bit sums of pairs, which stay below `2^15` for four vectors.
 */
/* @inline */ export function addQ4<T>(p: usize, u: v128, v: v128, w: v128, z: v128, low: v128, blocks: v128): v128 {
  const first = v128.load(p, 8);
  const second = v128.load(p, 24);
  if (sizeof<T>() === 2) {
    blocks = i16x8.add(i16x8.add(blocks, pairs(u, lowNibbles(first, low))), pairs(v, highNibbles(first, low)));
    return i16x8.add(i16x8.add(blocks, pairs(w, lowNibbles(second, low))), pairs(z, highNibbles(second, low)));
  }
  blocks = dot(v, highNibbles(first, low), dot(u, lowNibbles(first, low), blocks));
  return dot(z, highNibbles(second, low), dot(w, lowNibbles(second, low), blocks));
}

/** 32-bit sums of four blocks; where T is i16, from the sums of pairs and the initial sums. */
/* @inline */ export function wholeSums<T>(blocks: v128, starts: v128): v128 {
  return sizeof<T>() === 2 ? addPairs(starts, blocks, onePairs()) : blocks;
}
