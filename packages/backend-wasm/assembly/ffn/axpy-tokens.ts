/**
 * Weighted sums of rows of q8_0 and q4_0 for many tokens, with integer dot products. Rows, each with the coefficient h of its neuron, go 32 at a
 * time; for each block of 32 columns h times the scales of their blocks become 8-bit integers with one scale per 32 rows, as
 * activations do in other products: off by at most half a step, 1/254 of the largest. Four rows are interleaved byte by byte, so
 * that one dot product takes four of them for four columns.
 */
import {
  flipSigns,
  halfMask,
  halfOffset,
  leastNormal,
  nibbleMask,
  onePairs,
  roundingMagic,
  upperExponent,
} from '../simd/constants';
import { addPairs, hasMaddubs, dot, dotCodes, pairs, hasUsdot } from '../gemm/int8-dot';
import { highBytes, highPairs, lowBytes, lowPairs } from '../simd/interleave';
import { larger, rounded } from './axpy-coefficients';
import { fma, halfToFloat4, highNibbles, lowNibbles } from '../simd/vector';

/** Rows that are computed at once. */
export const ROWS: i32 = 32;
/** Bytes of the scales of a block of all rows. */
export const RAW_BYTES: usize = 64;
/** Bytes of an interleaved block: eight vectors for every four rows. */
export const MIXED_BYTES: usize = 1024;

/** Takes the scales of a block of all rows. */
export function fetchScales(rows: usize, offset: usize, to: usize): void {
  for (const end = to + RAW_BYTES; to < end; to += 2, rows += 4)
    store<u16>(to, load<u16>(<usize>load<u32>(rows) + offset));
}

/** Four binary16 numbers, which have to be normal. */
function normal4(at: usize, mask: v128, offset: v128): v128 {
  return i32x4.add(v128.and(i32x4.shl(v128.load16x4_s(at), 13), mask), offset);
}

/** The codes of 32 coefficients `h * scale` at `codes`; returns their scale. */
export function quantiseScales(raw: usize, h: usize, codes: usize): f32 {
  const step = leastNormal();
  const upper = upperExponent();
  // zero where an exponent has all bits or none
  const r0 = v128.and(i16x8.add(v128.load(raw), step), upper);
  const r1 = v128.and(i16x8.add(v128.load(raw, 16), step), upper);
  const r2 = v128.and(i16x8.add(v128.load(raw, 32), step), upper);
  const r3 = v128.and(i16x8.add(v128.load(raw, 48), step), upper);
  if (!i16x8.all_true(i16x8.min_u(i16x8.min_u(r0, r1), i16x8.min_u(r2, r3)))) return quantiseCarefully(raw, h, codes);
  const mask = halfMask();
  const offset = halfOffset();
  const a = f32x4.mul(normal4(raw, mask, offset), v128.load(h));
  const b = f32x4.mul(normal4(raw + 8, mask, offset), v128.load(h, 16));
  const c = f32x4.mul(normal4(raw + 16, mask, offset), v128.load(h, 32));
  const d = f32x4.mul(normal4(raw + 24, mask, offset), v128.load(h, 48));
  const e = f32x4.mul(normal4(raw + 32, mask, offset), v128.load(h, 64));
  const f = f32x4.mul(normal4(raw + 40, mask, offset), v128.load(h, 80));
  const g = f32x4.mul(normal4(raw + 48, mask, offset), v128.load(h, 96));
  const i = f32x4.mul(normal4(raw + 56, mask, offset), v128.load(h, 112));
  return encode(a, b, c, d, e, f, g, i, codes);
}

/** The same for scales that are anything. */
function quantiseCarefully(raw: usize, h: usize, codes: usize): f32 {
  const a = f32x4.mul(halfToFloat4(v128.load16x4_u(raw)), v128.load(h));
  const b = f32x4.mul(halfToFloat4(v128.load16x4_u(raw, 8)), v128.load(h, 16));
  const c = f32x4.mul(halfToFloat4(v128.load16x4_u(raw, 16)), v128.load(h, 32));
  const d = f32x4.mul(halfToFloat4(v128.load16x4_u(raw, 24)), v128.load(h, 48));
  const e = f32x4.mul(halfToFloat4(v128.load16x4_u(raw, 32)), v128.load(h, 64));
  const f = f32x4.mul(halfToFloat4(v128.load16x4_u(raw, 40)), v128.load(h, 80));
  const g = f32x4.mul(halfToFloat4(v128.load16x4_u(raw, 48)), v128.load(h, 96));
  const i = f32x4.mul(halfToFloat4(v128.load16x4_u(raw, 56)), v128.load(h, 112));
  return encode(a, b, c, d, e, f, g, i, codes);
}

// @inline
function encode(a: v128, b: v128, c: v128, d: v128, e: v128, f: v128, g: v128, i: v128, codes: usize): f32 {
  let top = i32x4.max_u(i32x4.max_u(larger(a, b), larger(c, d)), i32x4.max_u(larger(e, f), larger(g, i)));
  top = i32x4.max_u(top, i8x16.shuffle(top, top, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  top = i32x4.max_u(top, i8x16.shuffle(top, top, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  const largest = reinterpret<f32>(<u32>i32x4.extract_lane(top, 0) >> 1);
  // as for activations: what has no reciprocal counts as zero, and NaN makes the scale NaN
  const isNothing = largest < 1e-36;
  const inverse = f32x4.splat(isNothing ? 0 : 127 / largest);
  const magic = roundingMagic();
  const ab = i16x8.narrow_i32x4_s(rounded(a, inverse, magic), rounded(b, inverse, magic));
  const cd = i16x8.narrow_i32x4_s(rounded(c, inverse, magic), rounded(d, inverse, magic));
  const ef = i16x8.narrow_i32x4_s(rounded(e, inverse, magic), rounded(f, inverse, magic));
  const gi = i16x8.narrow_i32x4_s(rounded(g, inverse, magic), rounded(i, inverse, magic));
  v128.store(codes, i8x16.narrow_i16x8_s(ab, cd));
  v128.store(codes, i8x16.narrow_i16x8_s(ef, gi), 16);
  return isNothing ? 0 : largest / 127;
}

/** Adds `scale` times integer sums to four columns. */
// @inline
function addScaled(y: usize, sums: v128, scale: v128): void {
  v128.store(y, fma(f32x4.convert_i32x4_s(sums), scale, v128.load(y)));
}

// @inline
function addEight(
  y: usize,
  s0: v128,
  s1: v128,
  s2: v128,
  s3: v128,
  s4: v128,
  s5: v128,
  s6: v128,
  s7: v128,
  excess: v128,
  scale: f32,
): void {
  const factor = f32x4.splat(scale);
  addScaled(y, i32x4.sub(s0, excess), factor);
  addScaled(y + 16, i32x4.sub(s1, excess), factor);
  addScaled(y + 32, i32x4.sub(s2, excess), factor);
  addScaled(y + 48, i32x4.sub(s3, excess), factor);
  addScaled(y + 64, i32x4.sub(s4, excess), factor);
  addScaled(y + 80, i32x4.sub(s5, excess), factor);
  addScaled(y + 96, i32x4.sub(s6, excess), factor);
  addScaled(y + 112, i32x4.sub(s7, excess), factor);
}

/**
 * Interleaves one block of all rows: for every four rows eight vectors of unsigned codes, four columns each. Codes begin `offset` bytes
 * behind the addresses at `rows`; `flip` makes them unsigned.
 */
export function mixBlock(isQ4: bool, rows: usize, offset: usize, flip: i8, numQuads: i32, to: usize): void {
  const low = nibbleMask();
  const flips = i8x16.splat(flip);
  const numHalves: usize = isQ4 ? 1 : 2;
  for (let quad = 0; quad < numQuads; quad++, rows += 16, to += 128) {
    for (let half: usize = 0; half < numHalves; half++) {
      const from = offset + (half << 4);
      const a = v128.load(load<u32>(rows) + from);
      const b = v128.load(load<u32>(rows, 4) + from);
      const c = v128.load(load<u32>(rows, 8) + from);
      const d = v128.load(load<u32>(rows, 12) + from);
      for (let part: usize = 0; part < 2; part++) {
        const ab = part === 0 ? lowBytes(a, b) : highBytes(a, b);
        const cd = part === 0 ? lowBytes(c, d) : highBytes(c, d);
        const first = lowPairs(ab, cd);
        const second = highPairs(ab, cd);
        const at = to + (half << 6) + (part << 5);
        if (isQ4) {
          v128.store(at, lowNibbles(first, low));
          v128.store(at, lowNibbles(second, low), 16);
          v128.store(at, highNibbles(first, low), 64);
          v128.store(at, highNibbles(second, low), 80);
        } else {
          v128.store(at, v128.xor(first, flips));
          v128.store(at, v128.xor(second, flips), 16);
        }
      }
    }
  }
}

/** Adds an interleaved block to `y[32]`. Relaxed builds only. */
export function addMixed(isQ4: bool, mixed: usize, numQuads: i32, codes: usize, scale: f32, y: usize): void {
  if (isQ4 && hasMaddubs()) addNibbles(mixed, numQuads, codes, scale, y);
  else if (isQ4 || hasUsdot()) addBytes<u8>(isQ4 ? i8x16.splat(8) : flipSigns(), mixed, numQuads, codes, scale, y);
  else if (hasMaddubs()) addBytes<i16>(flipSigns(), mixed, numQuads, codes, scale, y);
  else addBytes<i32>(flipSigns(), mixed, numQuads, codes, scale, y);
}

/** T as for `dotCodes`; `zero` is what codes are too large by. */
function addBytes<T>(zero: v128, mixed: usize, numQuads: i32, codes: usize, scale: f32, y: usize): void {
  const ones = onePairs();
  let s0 = i32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let s4 = s0;
  let s5 = s0;
  let s6 = s0;
  let s7 = s0;
  let excess = s0;
  for (const end = codes + ((<usize>numQuads) << 2); codes < end; codes += 4, mixed += 128) {
    let h = v128.load32_splat(codes);
    let m = h;
    if (isSigned<T>()) {
      const isNegative = i8x16.lt_s(h, i8x16.splat(0));
      h = i8x16.abs(h);
      m = v128.xor(isNegative, zero);
      excess = dot(i8x16.splat(-1), v128.and(h, isNegative), excess);
    } else excess = dot(h, zero, excess);
    s0 = dotCodes<T>(h, m, v128.load(mixed), s0, ones);
    s1 = dotCodes<T>(h, m, v128.load(mixed, 16), s1, ones);
    s2 = dotCodes<T>(h, m, v128.load(mixed, 32), s2, ones);
    s3 = dotCodes<T>(h, m, v128.load(mixed, 48), s3, ones);
    s4 = dotCodes<T>(h, m, v128.load(mixed, 64), s4, ones);
    s5 = dotCodes<T>(h, m, v128.load(mixed, 80), s5, ones);
    s6 = dotCodes<T>(h, m, v128.load(mixed, 96), s6, ones);
    s7 = dotCodes<T>(h, m, v128.load(mixed, 112), s7, ones);
  }
  addEight(y, s0, s1, s2, s3, s4, s5, s6, s7, excess, scale);
}

/** The same for codes of four bits, by pairs: those of all rows add up to less than `2^15`. */
function addNibbles(mixed: usize, numQuads: i32, codes: usize, scale: f32, y: usize): void {
  const ones = onePairs();
  let s0 = i32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let s4 = s0;
  let s5 = s0;
  let s6 = s0;
  let s7 = s0;
  let total = s0;
  for (const end = codes + ((<usize>numQuads) << 2); codes < end; codes += 4, mixed += 128) {
    const h = v128.load32_splat(codes);
    total = i16x8.add(total, pairs(h, i8x16.splat(8)));
    s0 = i16x8.add(s0, pairs(h, v128.load(mixed)));
    s1 = i16x8.add(s1, pairs(h, v128.load(mixed, 16)));
    s2 = i16x8.add(s2, pairs(h, v128.load(mixed, 32)));
    s3 = i16x8.add(s3, pairs(h, v128.load(mixed, 48)));
    s4 = i16x8.add(s4, pairs(h, v128.load(mixed, 64)));
    s5 = i16x8.add(s5, pairs(h, v128.load(mixed, 80)));
    s6 = i16x8.add(s6, pairs(h, v128.load(mixed, 96)));
    s7 = i16x8.add(s7, pairs(h, v128.load(mixed, 112)));
  }
  const none = i32x4.splat(0);
  const excess = addPairs(none, total, ones);
  addEight(
    y,
    addPairs(none, s0, ones),
    addPairs(none, s1, ones),
    addPairs(none, s2, ones),
    addPairs(none, s3, ones),
    addPairs(none, s4, ones),
    addPairs(none, s5, ones),
    addPairs(none, s6, ones),
    addPairs(none, s7, ones),
    excess,
    scale,
  );
}

/** As `addMixed` with 16-bit dot products, for builds without relaxed ones; `zero` is what codes are too large by. */
export function addMixedWide(mixed: usize, numQuads: i32, codes: usize, scale: f32, zero: i32, y: usize): void {
  let total = 0;
  for (let i: usize = 0; i < (<usize>numQuads) << 2; i++) total += load<i8>(codes + i);
  const excess = i32x4.splat(total * zero);
  const factor = f32x4.splat(scale);
  for (let v: usize = 0; v < 128; v += 16) {
    let even = i32x4.splat(0);
    let odd = even;
    let from = mixed + v;
    for (let quad: usize = 0; quad < <usize>numQuads; quad++, from += 128) {
      const h = i16x8.extend_low_i8x16_s(v128.load32_splat(codes + (quad << 2)));
      const c = v128.load(from);
      even = i32x4.add(even, i32x4.dot_i16x8_s(i16x8.extend_low_i8x16_u(c), h));
      odd = i32x4.add(odd, i32x4.dot_i16x8_s(i16x8.extend_high_i8x16_u(c), h));
    }
    // each column has two sums, side by side
    const left = i8x16.shuffle(even, odd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    const right = i8x16.shuffle(even, odd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    addScaled(y + v, i32x4.sub(i32x4.add(left, right), excess), factor);
  }
}
