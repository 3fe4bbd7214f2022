/**
 * Dequantizes block formats to f32, bit for bit like the codecs of `@winnow/tensor`, which document the layouts. Every product
 * of a scale and a code is exact in f32, so that adding an offset is the only rounding.
 */
import { nibbleMask } from '../simd/constants.generated';
import { halfToFloat4, highNibbles, lowNibbles } from '../simd/vector';
import { IQ4_NL_BLOCK_BYTES, MXFP4_BLOCK_BYTES, Q8_0_BLOCK_BYTES } from './dtypes.generated';

export function dequantizeQ8(from: usize, to: usize, count: i32): void {
  const zero = f32x4.splat(0);
  for (let i = 0; i < count; i += 32, from += Q8_0_BLOCK_BYTES, to += 128) {
    const d = half(from);
    codes(v128.load(from, 2), d, zero, to);
    codes(v128.load(from, 18), d, zero, to + 64);
  }
}

/** q4_0 to q5_1: a scale, a minimum in the asymmetric formats, fifth bits in q5, nibbles. */
/* @inline */ export function dequantizeQ45(from: usize, to: usize, count: i32, hasMin: bool, hasFifth: bool): void {
  const fifthsAt: usize = hasMin ? 4 : 2;
  const codesAt: usize = hasFifth ? fifthsAt + 4 : fifthsAt;
  const zero = i8x16.splat(hasMin ? 0 : hasFifth ? 16 : 8);
  for (let i = 0; i < count; i += 32, from += codesAt + 16, to += 128) {
    const packed = v128.load(from + codesAt);
    let first = lowNibbles(packed, nibbleMask());
    let last = highNibbles(packed, nibbleMask());
    if (hasFifth) {
      first = v128.or(first, fifthBits(load<u32>(from + fifthsAt)));
      last = v128.or(last, fifthBits(load<u32>(from + fifthsAt) >> 16));
    }
    const scale = half(from);
    const offset = hasMin ? half(from + 2) : f32x4.splat(0);
    codes(i8x16.sub(first, zero), scale, offset, to);
    codes(i8x16.sub(last, zero), scale, offset, to + 64);
  }
}

export function dequantizeIq4Nl(from: usize, to: usize, count: i32): void {
  for (let i = 0; i < count; i += 32, from += IQ4_NL_BLOCK_BYTES, to += 128)
    levels(v128.load(from, 2), iq4Levels(), half(from), to);
}

export function dequantizeMxfp4(from: usize, to: usize, count: i32): void {
  const table = i8x16(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  for (let i = 0; i < count; i += 32, from += MXFP4_BLOCK_BYTES, to += 128) {
    // 2^(byte - 128) as two factors, because both ends of the range lie outside the normal numbers
    const exponent = <i32>load<u8>(from);
    levels(v128.load(from, 1), table, f32x4.splat(power2(exponent - 64) * power2(-64)), to);
  }
}

/** The binary16 at an address in all four lanes, as f32. */
function half(at: usize): v128 {
  return halfToFloat4(i32x4.splat(load<u16>(at)));
}

function power2(exponent: i32): f32 {
  return reinterpret<f32>((exponent + 127) << 23);
}

/** Stores `code * scale + offset` for 16 signed codes. */
function codes(c: v128, scale: v128, offset: v128, to: usize): void {
  const low = i16x8.extend_low_i8x16_s(c);
  const high = i16x8.extend_high_i8x16_s(c);
  v128.store(to, affine(i32x4.extend_low_i16x8_s(low), scale, offset));
  v128.store(to, affine(i32x4.extend_high_i16x8_s(low), scale, offset), 16);
  v128.store(to, affine(i32x4.extend_low_i16x8_s(high), scale, offset), 32);
  v128.store(to, affine(i32x4.extend_high_i16x8_s(high), scale, offset), 48);
}

function affine(code: v128, scale: v128, offset: v128): v128 {
  return f32x4.add(f32x4.mul(f32x4.convert_i32x4_s(code), scale), offset);
}

/** 16 bytes, each 16 if its bit of `bits` is set, else 0. */
function fifthBits(bits: u32): v128 {
  const spread = i8x16.swizzle(i32x4.splat(bits), i8x16(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
  const mask = i8x16(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  return v128.and(i8x16.eq(v128.and(spread, mask), mask), i8x16.splat(16));
}

function iq4Levels(): v128 {
  return i8x16(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

function levels(packed: v128, table: v128, scale: v128, to: usize): void {
  const zero = f32x4.splat(0);
  codes(i8x16.swizzle(table, lowNibbles(packed, nibbleMask())), scale, zero, to);
  codes(i8x16.swizzle(table, highNibbles(packed, nibbleMask())), scale, zero, to + 64);
}

export function dequantizeBf16(from: usize, to: usize, count: i32): void {
  let i = 0;
  for (; i + 4 <= count; i += 4, from += 8, to += 16) v128.store(to, i32x4.shl(v128.load16x4_u(from), 16));
  for (; i < count; i++, from += 2, to += 4) store<u32>(to, (<u32>load<u16>(from)) << 16);
}

/** Two bits of each byte: `shift` is 0, 2, 4 or 6. */
function twoBits(packed: v128, shift: i32): v128 {
  return v128.and(i16x8.shr_u(packed, shift), i8x16.splat(3));
}

export function dequantizeQ2K(from: usize, to: usize): void {
  const d = half(from + 80);
  const dmin = half(from + 82);
  for (let sub = 0; sub < 16; sub++) {
    const packed = <i32>load<u8>(from + sub);
    const scale = f32x4.mul(d, f32x4.splat(<f32>(packed & 15)));
    const offset = f32x4.neg(f32x4.mul(dmin, f32x4.splat(<f32>(packed >> 4))));
    const at = from + 16 + ((sub >> 3) << 5) + ((sub & 1) << 4);
    codes(twoBits(v128.load(at), ((sub >> 1) & 3) << 1), scale, offset, to + ((<usize>sub) << 6));
  }
}

export function dequantizeQ3K(from: usize, to: usize): void {
  const d = half(from + 108);
  const zero = f32x4.splat(0);
  for (let sub = 0; sub < 16; sub++) {
    const low = sub < 8 ? <i32>load<u8>(from + 96 + sub) & 15 : <i32>load<u8>(from + 88 + sub) >> 4;
    const top = (<i32>load<u8>(from + 104 + (sub & 3)) >> ((sub >> 2) << 1)) & 3;
    const scale = f32x4.mul(d, f32x4.splat(<f32>((low | (top << 4)) - 32)));
    const at = from + 32 + ((sub >> 3) << 5) + ((sub & 1) << 4);
    const code = twoBits(v128.load(at), ((sub >> 1) & 3) << 1);
    const bit = i8x16.splat((<i8>1) << (<i8>(sub >> 1)));
    const isHigh = i8x16.eq(v128.and(v128.load(from + ((sub & 1) << 4)), bit), bit);
    // codes with the high bit are 0..3, without it -4..-1
    codes(i8x16.sub(code, v128.andnot(i8x16.splat(4), isHigh)), scale, zero, to + ((<usize>sub) << 6));
  }
}

/** The 6-bit scale and min of a sub-block of q4_K and q5_K. */
function scaleOf(at: usize, sub: i32): i32 {
  return sub < 4
    ? <i32>load<u8>(at + sub) & 63
    : (<i32>load<u8>(at + sub + 4) & 15) | ((<i32>load<u8>(at + sub - 4) >> 6) << 4);
}
function minOf(at: usize, sub: i32): i32 {
  return sub < 4
    ? <i32>load<u8>(at + sub + 4) & 63
    : (<i32>load<u8>(at + sub + 4) >> 4) | ((<i32>load<u8>(at + sub) >> 6) << 4);
}

/** q4_K, and q5_K with its fifth bits. */
export function dequantizeQ45K(from: usize, to: usize, hasFifth: bool): void {
  const d = half(from);
  const dmin = half(from + 2);
  const low = nibbleMask();
  const sixteen = i8x16.splat(16);
  for (let sub = 0; sub < 8; sub++, to += 128) {
    const scale = f32x4.mul(d, f32x4.splat(<f32>scaleOf(from + 4, sub)));
    const offset = f32x4.neg(f32x4.mul(dmin, f32x4.splat(<f32>minOf(from + 4, sub))));
    const at = from + (hasFifth ? 48 : 16) + ((sub >> 1) << 5);
    const bit = i8x16.splat((<i8>1) << (<i8>sub));
    for (let part: usize = 0; part < 32; part += 16) {
      const packed = v128.load(at + part);
      let code = (sub & 1) === 0 ? lowNibbles(packed, low) : highNibbles(packed, low);
      if (hasFifth) {
        const isSet = i8x16.eq(v128.and(v128.load(from + part, 16), bit), bit);
        code = v128.or(code, v128.and(isSet, sixteen));
      }
      codes(code, scale, offset, to + (part << 2));
    }
  }
}

export function dequantizeQ6K(from: usize, to: usize): void {
  const d = half(from + 208);
  const zero = f32x4.splat(0);
  for (let sub = 0; sub < 16; sub++, to += 64) {
    const scale = f32x4.mul(d, f32x4.splat(<f32>load<i8>(from + 192 + sub)));
    const halfBlock = sub >> 3;
    const quarter = (sub >> 1) & 3;
    const low = v128.load(from + (halfBlock << 6) + ((quarter & 1) << 5) + ((sub & 1) << 4));
    const high = v128.load(from + 128 + (halfBlock << 5) + ((sub & 1) << 4));
    const four = quarter >> 1 === 0 ? lowNibbles(low, nibbleMask()) : highNibbles(low, nibbleMask());
    const two = i16x8.shl(twoBits(high, quarter << 1), 4);
    codes(i8x16.sub(v128.or(four, two), i8x16.splat(32)), scale, zero, to);
  }
}

export function dequantizeIq4Xs(from: usize, to: usize): void {
  const d = half(from);
  const scalesHigh = <i32>load<u16>(from, 2);
  for (let sub = 0; sub < 8; sub++, to += 128) {
    const low = (<i32>load<u8>(from + 4 + (sub >> 1)) >> ((sub & 1) << 2)) & 15;
    const scale = (low | (((scalesHigh >> (sub << 1)) & 3) << 4)) - 32;
    levels(v128.load(from + 8 + (sub << 4)), iq4Levels(), f32x4.mul(d, f32x4.splat(<f32>scale)), to);
  }
}

export function dequantizeTq2(from: usize, to: usize): void {
  const d = half(from + 64);
  const zero = f32x4.splat(0);
  const one = i8x16.splat(1);
  for (let group = 0; group < 2; group++, to += 512) {
    for (let part = 0; part < 2; part++) {
      const packed = v128.load(from + (group << 5) + (part << 4));
      for (let trit = 0; trit < 4; trit++) {
        codes(i8x16.sub(twoBits(packed, trit << 1), one), d, zero, to + (trit << 7) + (part << 6));
      }
    }
  }
}
