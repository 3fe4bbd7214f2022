/**
 * Scales of k-quants, four rows interleaved: what kernels and dequantization have in common, and super-blocks of q5_K. The kernels
 * of q4_K and q6_K are generated; see qgemv.generated.ts. T is i16 where products are summed by maddubs, else i32.
 */
import { META_BYTES, META_SUM } from '../quant/quantize-activations';
import { byteMask, halfFactor, halfMask, nibbleMask, onePairs, pairMask } from '../simd/constants';
import { fma, highNibbles, lowNibbles } from '../simd/vector';
import { Q4_K, Q5_K } from '../quant/dequantize';
import { addPairs, dot, pairs } from './int8-dot';

/** Bytes of a super-block of four rows. */
export function superBlockBytes(dtype: i32): usize {
  return dtype === Q4_K ? 576 : dtype === Q5_K ? 704 : 840;
}

/** Four repacked scales: normal numbers or zeros only, see repack.ts. */
export function scales4(at: usize, mask: v128, factor: v128): v128 {
  return f32x4.mul(v128.and(i32x4.shl(v128.load16x4_s(at), 13), mask), factor);
}

/** Six-bit scales of four rows, sub-blocks 0 to 3 or 4 to 7 as the bytes of each lane; `at` is where the scales begin. */
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

/** The bit of sub-block `sub` of every byte, as 0 or 16. */
/* @inline */ export function fifthBit(bits: v128, sub: i32, sixteen: v128): v128 {
  return v128.and(sub < 4 ? i16x8.shl(bits, 4 - sub) : i16x8.shr_u(bits, sub - 4), sixteen);
}

/** Adds products of codes of five bits at most: to sums of pairs where T is i16, of four such vectors, `8 * 31 * 127 < 2^15`. */
/* @inline */ export function addProducts<T>(x: v128, codes: v128, sum: v128): v128 {
  return sizeof<T>() === 2 ? i16x8.add(sum, pairs(x, codes)) : dot(x, codes, sum);
}

/** The sums of two such chains. */
/* @inline */ export function joinChains<T>(a: v128, b: v128, ones: v128): v128 {
  return sizeof<T>() === 2 ? addPairs(addPairs(i32x4.splat(0), a, ones), b, ones) : i32x4.add(a, b);
}

/** Adds the sums of two sub-blocks times their scales, the low bytes of each lane. */
export function addSubBlocks(a: v128, b: v128, scales: v128, byte: v128, meta: usize, scaled: v128): v128 {
  const first = f32x4.mul(lowByte(scales, byte), v128.load32_splat(meta));
  const second = f32x4.mul(lowByte(i32x4.shr_u(scales, 8), byte), v128.load32_splat(meta, META_BYTES));
  scaled = fma(f32x4.convert_i32x4_s(a), first, scaled);
  return fma(f32x4.convert_i32x4_s(b), second, scaled);
}

/** Adds the sums of a sub-block of q6_K; `top` has the signed scales of four rows in the upper bytes of its lanes. */
export function addScaled(a: v128, top: v128, meta: usize, scaled: v128): v128 {
  const scales = f32x4.mul(f32x4.convert_i32x4_s(i32x4.shr_s(top, 24)), v128.load32_splat(meta));
  return fma(f32x4.convert_i32x4_s(a), scales, scaled);
}

/** Adds a super-block of q4_K or q5_K to the sums: its products, and its mins times the sums of activations. */
export function addSuperBlock(at: usize, scaled: v128, meta: usize, low: v128, byte: v128, sums: v128): v128 {
  let offset = f32x4.splat(0);
  for (let half = 0; half < 2; half++) {
    const mins = minsK(at + 16, half !== 0, low);
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

export function superBlockQ5K<T>(at: usize, x: usize, meta: usize, sums: v128): v128 {
  const low = nibbleMask();
  const byte = byteMask();
  const scales = scalesK(at + 16, false, low);
  let scaled = subBlocksQ5K<T>(0, at, x, scales, byte, meta, f32x4.splat(0));
  scaled = subBlocksQ5K<T>(2, at, x, i32x4.shr_u(scales, 16), byte, meta, scaled);
  const others = scalesK(at + 16, true, low);
  scaled = subBlocksQ5K<T>(4, at, x, others, byte, meta, scaled);
  scaled = subBlocksQ5K<T>(6, at, x, i32x4.shr_u(others, 16), byte, meta, scaled);
  return addSuperBlock(at, scaled, meta, low, byte, sums);
}

/** Sub-blocks `sub` and `sub + 1`; a copy for each, so that shifts are constants. */
/* @inline */ function subBlocksQ5K<T>(
  sub: i32,
  at: usize,
  x: usize,
  scales: v128,
  byte: v128,
  meta: usize,
  scaled: v128,
): v128 {
  const low = nibbleMask();
  const ones = onePairs();
  const sixteen = v128.and(pairMask(), i32x4.splat(0x10101010));
  let a = i32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let y = x + ((<usize>sub) << 5);
  let codes = at + 192 + ((<usize>sub) << 6);
  let fifths = at + 64;
  for (let j = 0; j < 4; j++) {
    let v = v128.load(codes);
    let bits = v128.load(fifths);
    a = addProducts<T>(v128.load32_splat(y), v128.or(lowNibbles(v, low), fifthBit(bits, sub, sixteen)), a);
    b = addProducts<T>(v128.load32_splat(y, 32), v128.or(highNibbles(v, low), fifthBit(bits, sub + 1, sixteen)), b);
    v = v128.load(codes, 16);
    bits = v128.load(fifths, 16);
    c = addProducts<T>(v128.load32_splat(y, 4), v128.or(lowNibbles(v, low), fifthBit(bits, sub, sixteen)), c);
    d = addProducts<T>(v128.load32_splat(y, 36), v128.or(highNibbles(v, low), fifthBit(bits, sub + 1, sixteen)), d);
    codes += 32;
    fifths += 32;
    y += 8;
  }
  return addSubBlocks(
    joinChains<T>(a, c, ones),
    joinChains<T>(b, d, ones),
    scales,
    byte,
    meta + <usize>sub * META_BYTES,
    scaled,
  );
}
