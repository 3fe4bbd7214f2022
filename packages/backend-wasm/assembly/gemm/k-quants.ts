/**
 * Scales of k-quants in groups of four interleaved rows, shared by the kernels of qgemv.generated.ts and unpacked-groups.ts. T is
 * i16 where products are summed by maddubs, else i32.
 */
import { halfFactor, halfMask, pairMask } from '../simd/constants.generated';
import { fma } from '../simd/vector';
import { addPairs, dot, pairs } from '../quant/int8-dot';
import { META_BYTES, META_SUM, SCALES_AT_K } from '../runtime/layout.generated';

/** Four repacked scales as f32; all are normal numbers or zeros, see repack.ts. */
export function scales4(at: usize, mask: v128, factor: v128): v128 {
  return f32x4.mul(v128.and(i32x4.shl(v128.load16x4_s(at), 13), mask), factor);
}

/** Six-bit scales from `at` on: a lane per row, with a byte for each of sub-blocks 0 to 3, or 4 to 7 if `isHigh`. */
export function scalesK(at: usize, isHigh: bool, low: v128): v128 {
  const first = v128.load(at);
  if (!isHigh) return v128.and(first, v128.or(low, pairMask()));
  return v128.or(v128.and(v128.load(at, 32), low), v128.and(i32x4.shr_u(first, 2), pairMask()));
}
export function minsK(at: usize, isHigh: bool, low: v128): v128 {
  const first = v128.load(at, 16);
  if (!isHigh) return v128.and(first, v128.or(low, pairMask()));
  return v128.or(v128.and(i32x4.shr_u(v128.load(at, 32), 4), low), v128.and(i32x4.shr_u(first, 2), pairMask()));
}

/** The low byte of every lane as a float. */
export function lowByte(v: v128, byte: v128): v128 {
  return f32x4.convert_i32x4_s(v128.and(v, byte));
}

/** The fifth bits of sub-block `sub`, one in every byte, as 0 or 16. */
/* @inline */ export function fifthBit(bits: v128, sub: i32, sixteen: v128): v128 {
  return v128.and(sub < 4 ? i16x8.shl(bits, 4 - sub) : i16x8.shr_u(bits, sub - 4), sixteen);
}

/** Adds products with codes of at most five bits; where T is i16, four vectors of pairs fit 16 bits: `8 * 31 * 127 < 2^15`. */
/* @inline */ export function addProducts<T>(x: v128, codes: v128, sum: v128): v128 {
  return sizeof<T>() === 2 ? i16x8.add(sum, pairs(x, codes)) : dot(x, codes, sum);
}

/** Adds two such chains, as 32-bit sums. */
/* @inline */ export function joinChains<T>(a: v128, b: v128, ones: v128): v128 {
  return sizeof<T>() === 2 ? addPairs(addPairs(i32x4.splat(0), a, ones), b, ones) : i32x4.add(a, b);
}

/** Adds the sums of two sub-blocks times their scales, the two low bytes of each lane. */
export function addSubBlocks(a: v128, b: v128, scales: v128, byte: v128, meta: usize, scaled: v128): v128 {
  const first = f32x4.mul(lowByte(scales, byte), v128.load32_splat(meta));
  const second = f32x4.mul(lowByte(i32x4.shr_u(scales, 8), byte), v128.load32_splat(meta, META_BYTES));
  scaled = fma(f32x4.convert_i32x4_s(a), first, scaled);
  return fma(f32x4.convert_i32x4_s(b), second, scaled);
}

/** Adds the sums of a sub-block of q6_K times their signed scales, the top bytes of the lanes of `top`. */
export function addScaled(a: v128, top: v128, meta: usize, scaled: v128): v128 {
  const scales = f32x4.mul(f32x4.convert_i32x4_s(i32x4.shr_s(top, 24)), v128.load32_splat(meta));
  return fma(f32x4.convert_i32x4_s(a), scales, scaled);
}

/** Adds a super-block of q4_K or q5_K to the sums: its scaled products minus its mins times the sums of activations. */
export function addSuperBlock(at: usize, scaled: v128, meta: usize, low: v128, byte: v128, sums: v128): v128 {
  let offset = f32x4.splat(0);
  for (let half = 0; half < 2; half++) {
    const mins = minsK(at + SCALES_AT_K, half !== 0, low);
    offset = fma(lowByte(mins, byte), v128.load32_splat(meta, META_SUM), offset);
    offset = fma(lowByte(i32x4.shr_u(mins, 8), byte), v128.load32_splat(meta, META_BYTES + META_SUM), offset);
    offset = fma(lowByte(i32x4.shr_u(mins, 16), byte), v128.load32_splat(meta, 2 * META_BYTES + META_SUM), offset);
    offset = fma(lowByte(i32x4.shr_u(mins, 24), byte), v128.load32_splat(meta, 3 * META_BYTES + META_SUM), offset);
    meta += 4 * META_BYTES;
  }
  const mask = halfMask();
  const factor = halfFactor();
  sums = fma(scales4(at, mask, factor), scaled, sums);
  return fma(f32x4.neg(scales4(at + 8, mask, factor)), offset, sums);
}
