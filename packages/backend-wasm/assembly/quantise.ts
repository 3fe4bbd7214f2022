/**
 * Activations as 8-bit integers with one scale per block of 32: `x = d * code`, `d = max |x| / 127`, so that a value is off
 * by at most d / 2. Codes are stored as i8 and, where some product needs 16-bit factors, as i16.
 */
import { roundingMagic } from './constants';
import { isExactForU8 } from './dots8';
import { takeUnits } from './threads';

/** Bytes of what is known of a block. */
export const META_BYTES: usize = 32;
export const META_SCALE: usize = 0; // d
export const META_SUM: usize = 4; // d * sum of codes
export const META_MINUS_8: usize = 8; // -8 * sum of codes
export const META_MINUS_128: usize = 12; // -128 * sum of codes
export const META_MINUS_32: usize = 16; // -32 * sum of the codes of the first half, of the second half
export const META_ZERO: usize = 24;

export function codesBytes(numTokens: i32, numInputs: i32): usize {
  return (<usize>numTokens * <usize>numInputs + 63) & ~63;
}

/** Where the codes as i16 begin, after those as i8. */
export function wideCodesAt(base: usize, numTokens: i32, numInputs: i32): usize {
  return base + codesBytes(numTokens, numInputs);
}
/** Where the metas `[token, block]` begin. */
export function metasAt(base: usize, numTokens: i32, numInputs: i32): usize {
  return base + codesBytes(numTokens, numInputs) * 3;
}

/** Codes and metas `[token, block]`. Units: runs of eight blocks of any token. */
export function quantiseTokens(x: usize, numTokens: i32, numInputs: i32, base: usize): void {
  const numBlocks = (numTokens * numInputs) >> 5;
  const wide = wideCodesAt(base, numTokens, numInputs);
  const metas = metasAt(base, numTokens, numInputs);
  for (let begin = takeUnits(8); begin < numBlocks; begin = takeUnits(8)) {
    const end = min<i32>(numBlocks, begin + 8);
    for (let block = <usize>begin; block < <usize>end; block++) {
      quantiseBlock(x + (block << 7), base + (block << 5), wide + (block << 6), metas + block * META_BYTES);
    }
  }
}

/** The same by the calling thread alone. */
export function quantiseAlone(x: usize, numTokens: i32, numInputs: i32, base: usize): void {
  const numBlocks = <usize>(numTokens * numInputs) >> 5;
  const wide = wideCodesAt(base, numTokens, numInputs);
  const metas = metasAt(base, numTokens, numInputs);
  for (let block: usize = 0; block < numBlocks; block++) {
    quantiseBlock(x + (block << 7), base + (block << 5), wide + (block << 6), metas + block * META_BYTES);
  }
}

/** Tokens of codes and metas `[block, token]`: there are whole fours of them, the last ones zeros. */
export function paddedTokens(numTokens: i32): i32 {
  return (numTokens + 3) & ~3;
}

/** Codes and metas `[block, token]`. Units: tokens. */
export function quantiseColumns(x: usize, numTokens: i32, numInputs: i32, base: usize): void {
  const padded = paddedTokens(numTokens);
  const isNarrowOnly = ASC_FEATURE_RELAXED_SIMD ? isExactForU8() : false;
  const wide = isNarrowOnly ? 0 : wideCodesAt(base, padded, numInputs);
  const metas = metasAt(base, padded, numInputs);
  const numBlocks = numInputs >> 5;
  for (let t = takeUnits(1); t < padded; t = takeUnits(1)) {
    let from = x + (<usize>t * <usize>numInputs << 2);
    let at = <usize>t;
    for (let block = 0; block < numBlocks; block++, from += 128, at += <usize>padded) {
      const to = wide == 0 ? 0 : wide + (at << 6);
      if (t < numTokens) {
        quantiseBlock(from, base + (at << 5), to, metas + at * META_BYTES);
        continue;
      }
      memory.fill(base + (at << 5), 0, 32);
      if (to != 0) memory.fill(to, 0, 64);
      memory.fill(metas + at * META_BYTES, 0, META_BYTES);
    }
  }
}

/** The integers nearest to `value * factor`, rounded on every machine alike: 1.5 * 2^23 added, they stand in the low bits. */
@inline
export function nearest(value: v128, factor: v128, magic: v128): v128 {
  return i32x4.sub(f32x4.add(f32x4.mul(value, factor), magic), magic);
}

/** One block; `wide` is 0 when nobody wants codes as i16. */
export function quantiseBlock(x: usize, codes: usize, wide: usize, meta: usize): void {
  // magnitudes as integers: NaN is larger than anything
  const magnitude = i32x4.splat(0x7fffffff);
  let top = v128.and(v128.load(x), magnitude);
  for (let at: usize = 16; at < 128; at += 16) top = i32x4.max_s(top, v128.and(v128.load(x + at), magnitude));
  top = i32x4.max_s(top, i8x16.shuffle(top, top, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  top = i32x4.max_s(top, i8x16.shuffle(top, top, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  const largest = f32x4.extract_lane(top, 0);
  // values whose reciprocal leaves the range count as zero; NaN makes d NaN, and with it every product
  const inverse: f32 = largest < 1e-36 ? 0 : 127 / largest;
  const d: f32 = largest < 1e-36 ? 0 : largest / 127;
  const factor = f32x4.splat(inverse);
  const magic = roundingMagic();
  let sums = i32x4.splat(0);
  let firstHalf = 0;
  for (let half: usize = 0; half < 2; half++) {
    const at = x + (half << 6);
    const a = nearest(v128.load(at), factor, magic);
    const b = nearest(v128.load(at, 16), factor, magic);
    const c = nearest(v128.load(at, 32), factor, magic);
    const e = nearest(v128.load(at, 48), factor, magic);
    const low = i16x8.narrow_i32x4_s(a, b);
    const high = i16x8.narrow_i32x4_s(c, e);
    if (wide != 0) {
      v128.store(wide + (half << 5), low);
      v128.store(wide + (half << 5), high, 16);
    }
    v128.store(codes + (half << 4), i8x16.narrow_i16x8_s(low, high));
    sums = i32x4.add(i32x4.add(a, b), i32x4.add(c, e));
    const sum =
      i32x4.extract_lane(sums, 0) +
      i32x4.extract_lane(sums, 1) +
      i32x4.extract_lane(sums, 2) +
      i32x4.extract_lane(sums, 3);
    if (half == 0) firstHalf = sum;
    else {
      const total = firstHalf + sum;
      store<f32>(meta, d, META_SCALE);
      store<f32>(meta, d * <f32>total, META_SUM);
      store<i32>(meta, -8 * total, META_MINUS_8);
      store<i32>(meta, -128 * total, META_MINUS_128);
      store<i32>(meta, -32 * firstHalf, META_MINUS_32);
      store<i32>(meta, -32 * sum, META_MINUS_32 + 4);
      store<i32>(meta, 0, META_ZERO);
    }
  }
}
