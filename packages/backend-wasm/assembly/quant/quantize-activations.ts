/**
 * Activations as 8-bit integers with one scale per block of 32: `x = d * code`, `d = max |x| / 127`, so that a value is off
 * by at most d / 2. Codes are stored as i8 and in a second form: as i16 in builds without relaxed SIMD; otherwise, on machines
 * without usdot, as magnitudes [32] and signs [32] for weights of q8_0; see `dotSignMagnitude`.
 */
import { flipSigns, roundingMagic } from '../simd/constants.generated';
import { Q8_0 } from './dequantize';
import { dot, hasUsdot } from './int8-dot';
import { sumI4 } from '../simd/vector';
import {
  META_BYTES,
  META_MINUS_32,
  META_MINUS_8,
  META_SCALE,
  META_START_Q8,
  META_SUM,
  META_ZERO,
} from '../runtime/layout.generated';
import { nextItems } from '../runtime/threads';

function codesBytes(numTokens: i32, numInputs: i32): usize {
  return (<usize>numTokens * <usize>numInputs + 63) & ~63;
}

/** Bytes of the second form of a block. */
export const SIDE_BYTES: usize = 64;

/** Where the second form of codes begins, after the first one. */
function sideCodesAt(base: usize, numTokens: i32, numInputs: i32): usize {
  return base + codesBytes(numTokens, numInputs);
}
/** Whether kernels for weights of this type take the second form of codes. */
function takesSide(dtype: i32): bool {
  return !ASC_FEATURE_RELAXED_SIMD || (dtype === Q8_0 && !hasUsdot());
}

/** Address of the codes in the form that kernels for weights of this type take. */
export function codesFor(dtype: i32, base: usize, numTokens: i32, numInputs: i32): usize {
  return takesSide(dtype) ? sideCodesAt(base, numTokens, numInputs) : base;
}

/** Bytes of the codes of `numColumns` columns in that form. */
export function codeBytesFor(dtype: i32, numColumns: i32): usize {
  return (<usize>numColumns) << (takesSide(dtype) ? 1 : 0);
}

/** Address of the metas, after both forms of the codes. */
export function metasAt(base: usize, numTokens: i32, numInputs: i32): usize {
  return base + codesBytes(numTokens, numInputs) * 3;
}

/** Quantizes blocks `[begin, end)` of all tokens to codes and metas `[token, block]`. */
function quantizeRun(x: usize, numTokens: i32, numInputs: i32, base: usize, begin: i32, end: i32): void {
  const side = hasUsdot() ? 0 : sideCodesAt(base, numTokens, numInputs);
  const metas = metasAt(base, numTokens, numInputs);
  for (let block = <usize>begin; block < <usize>end; block++) {
    quantizeBlock(x + (block << 7), base + (block << 5), blockOf(side, block), metas + block * META_BYTES);
  }
}

/** Quantizes to codes and metas `[token, block]`. Work items: runs of eight blocks of any tokens. */
export function quantizeTokens(x: usize, numTokens: i32, numInputs: i32, base: usize): void {
  const numBlocks = (numTokens * numInputs) >> 5;
  for (let begin = nextItems(8); begin < numBlocks; begin = nextItems(8)) {
    quantizeRun(x, numTokens, numInputs, base, begin, min<i32>(numBlocks, begin + 8));
  }
}

/** The same by the calling thread alone. */
export function quantizeAlone(x: usize, numTokens: i32, numInputs: i32, base: usize): void {
  quantizeRun(x, numTokens, numInputs, base, 0, (numTokens * numInputs) >> 5);
}

/** Number of tokens in codes and metas `[block, token]`, which are padded with zeros to a multiple of four. */
export function paddedTokens(numTokens: i32): i32 {
  return (numTokens + 3) & ~3;
}

/** Quantizes to codes and metas `[block, token]`. Work items: tokens. */
export function quantizeColumns(x: usize, numTokens: i32, numInputs: i32, base: usize): void {
  const padded = paddedTokens(numTokens);
  const side = hasUsdot() ? 0 : sideCodesAt(base, padded, numInputs);
  const metas = metasAt(base, padded, numInputs);
  const numBlocks = numInputs >> 5;
  for (let t = nextItems(1); t < padded; t = nextItems(1)) {
    let from = x + ((<usize>t * <usize>numInputs) << 2);
    let at = <usize>t;
    for (let block = 0; block < numBlocks; block++, from += 128, at += <usize>padded) {
      const to = blockOf(side, at);
      if (t < numTokens) {
        quantizeBlock(from, base + (at << 5), to, metas + at * META_BYTES);
        continue;
      }
      memory.fill(base + (at << 5), 0, 32);
      if (to !== 0) memory.fill(to, 0, SIDE_BYTES);
      memory.fill(metas + at * META_BYTES, 0, META_BYTES);
    }
  }
}

/** The integers nearest to `value * factor`, the same on every machine: adding 1.5 * 2^23 leaves them in the low bits. */
/* @inline */ export function nearest(value: v128, factor: v128, magic: v128): v128 {
  return i32x4.sub(f32x4.add(f32x4.mul(value, factor), magic), magic);
}

/** Address of the second form of a block; 0 if there is none. */
/* @inline */ function blockOf(side: usize, block: usize): usize {
  return side === 0 ? 0 : side + block * SIDE_BYTES;
}

/**
 * Stores the magnitudes [16] and signs [16] of 16 codes at `to` and `to + signs`. Returns the correction for dot products of
 * magnitudes with signed codes: the sum of the magnitudes of negative codes, over every four codes.
 */
/* @inline */ export function storeSignMagnitude(codes: v128, sign: v128, to: usize, signs: usize): v128 {
  const isNegative = i8x16.lt_s(codes, i8x16.splat(0));
  const magnitudes = i8x16.abs(codes);
  v128.store(to, magnitudes);
  v128.store(to + signs, v128.xor(isNegative, sign));
  return dot(i8x16.splat(1), v128.and(magnitudes, isNegative), i32x4.splat(0));
}

/** The largest magnitude of a block in each of four lanes, compared as integers: NaN is larger than anything. */
export function largestMagnitudes(x: usize): v128 {
  const magnitude = i32x4.splat(0x7fffffff);
  let top = v128.and(v128.load(x), magnitude);
  for (let at: usize = 16; at < 128; at += 16) top = i32x4.max_s(top, v128.and(v128.load(x + at), magnitude));
  return top;
}

/** Quantizes one block; `side` is 0 if no kernel reads the second form of its codes. */
export function quantizeBlock(x: usize, codes: usize, side: usize, meta: usize): void {
  let top = largestMagnitudes(x);
  top = i32x4.max_s(top, i8x16.shuffle(top, top, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  top = i32x4.max_s(top, i8x16.shuffle(top, top, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  const largest = f32x4.extract_lane(top, 0);
  // values without a finite reciprocal count as zero; NaN makes d NaN, and with it every product
  const inverse: f32 = largest < 1e-36 ? 0 : 127 / largest;
  const d: f32 = largest < 1e-36 ? 0 : largest / 127;
  const factor = f32x4.splat(inverse);
  const magic = roundingMagic();
  let lacking = i32x4.splat(0);
  let firstHalf = 0;
  let lastHalf = 0;
  for (let half: usize = 0; half < 2; half++) {
    const at = x + (half << 6);
    const a = nearest(v128.load(at), factor, magic);
    const b = nearest(v128.load(at, 16), factor, magic);
    const c = nearest(v128.load(at, 32), factor, magic);
    const e = nearest(v128.load(at, 48), factor, magic);
    const low = i16x8.narrow_i32x4_s(a, b);
    const high = i16x8.narrow_i32x4_s(c, e);
    const narrow = i8x16.narrow_i16x8_s(low, high);
    v128.store(codes + (half << 4), narrow);
    if (side !== 0) {
      if (ASC_FEATURE_RELAXED_SIMD) {
        lacking = i32x4.add(lacking, storeSignMagnitude(narrow, flipSigns(), side + (half << 4), 32));
      } else {
        v128.store(side + (half << 5), low);
        v128.store(side + (half << 5), high, 16);
      }
    }
    firstHalf = lastHalf;
    lastHalf = sumI4(i32x4.add(i32x4.add(a, b), i32x4.add(c, e)));
  }
  const total = firstHalf + lastHalf;
  store<f32>(meta, d, META_SCALE);
  store<f32>(meta, d * <f32>total, META_SUM);
  store<i32>(meta, -8 * total, META_MINUS_8);
  store<i32>(meta, ASC_FEATURE_RELAXED_SIMD && side !== 0 ? sumI4(lacking) : -128 * total, META_START_Q8);
  store<i32>(meta, -32 * firstHalf, META_MINUS_32);
  store<i32>(meta, -32 * lastHalf, META_MINUS_32 + 4);
  store<i32>(meta, 0, META_ZERO);
}
