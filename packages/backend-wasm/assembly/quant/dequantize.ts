/**
 * Block formats to f32, the values of the codecs of `@winnow/tensor` bit for bit: every product of a scale and a code is
 * exact in f32, so that an offset is the only rounding. Layouts are described there.
 */
import { decodeGridBlock, gridBlockBytes } from './dequantize-iq';
import { halfMask, halfOffset, largestRank, leastNormal, magnitudeMask } from '../simd/constants';
import { halfToFloat, halfToFloat4 } from '../simd/vector';

// GGUF numbers
export const F32: i32 = 0;
export const F16: i32 = 1;
export const Q4_0: i32 = 2;
export const Q4_1: i32 = 3;
export const Q5_0: i32 = 6;
export const Q5_1: i32 = 7;
export const Q8_0: i32 = 8;
export const Q2_K: i32 = 10;
export const Q3_K: i32 = 11;
export const Q4_K: i32 = 12;
export const Q5_K: i32 = 13;
export const Q6_K: i32 = 14;
export const IQ4_NL: i32 = 20;
export const IQ4_XS: i32 = 23;
export const BF16: i32 = 30;
export const TQ2_0: i32 = 35;
export const MXFP4: i32 = 39;

/** Bytes of `count` values, whole blocks. */
export function bytesOf(dtype: i32, count: i32): usize {
  const n = <usize>count;
  switch (dtype) {
    case F32:
      return n * 4;
    case F16:
    case BF16:
      return n * 2;
    case Q4_0:
    case IQ4_NL:
      return (n >> 5) * 18;
    case Q4_1:
      return (n >> 5) * 20;
    case Q5_0:
      return (n >> 5) * 22;
    case Q5_1:
      return (n >> 5) * 24;
    case Q8_0:
      return (n >> 5) * 34;
    case MXFP4:
      return (n >> 5) * 17;
    case Q2_K:
      return (n >> 8) * 84;
    case Q3_K:
      return (n >> 8) * 110;
    case Q4_K:
      return (n >> 8) * 144;
    case Q5_K:
      return (n >> 8) * 176;
    case Q6_K:
      return (n >> 8) * 210;
    case IQ4_XS:
      return (n >> 8) * 136;
    case TQ2_0:
      return (n >> 8) * 66;
    default:
      return (n >> 8) * gridBlockBytes(dtype);
  }
}

/** Decodes `count` values at `from` to f32 at `to`. */
export function decode(dtype: i32, from: usize, to: usize, count: i32): void {
  switch (dtype) {
    case F32:
      memory.copy(to, from, (<usize>count) << 2);
      return;
    case F16:
      decodeF16(from, to, count);
      return;
    case BF16:
      decodeBf16(from, to, count);
      return;
    case Q4_0:
      for (let i = 0; i < count; i += 32, from += 18, to += 128) {
        const d = half(from);
        nibbles(v128.load(from, 2), 8, d, f32x4.splat(0), to);
      }
      return;
    case Q4_1:
      for (let i = 0; i < count; i += 32, from += 20, to += 128) {
        nibbles(v128.load(from, 4), 0, half(from), half(from + 2), to);
      }
      return;
    case Q5_0:
      for (let i = 0; i < count; i += 32, from += 22, to += 128) {
        fiveBits(v128.load(from, 6), load<u32>(from, 2), 16, half(from), f32x4.splat(0), to);
      }
      return;
    case Q5_1:
      for (let i = 0; i < count; i += 32, from += 24, to += 128) {
        fiveBits(v128.load(from, 8), load<u32>(from, 4), 0, half(from), half(from + 2), to);
      }
      return;
    case Q8_0:
      for (let i = 0; i < count; i += 32, from += 34, to += 128) {
        const d = half(from);
        const zero = f32x4.splat(0);
        codes(v128.load(from, 2), d, zero, to);
        codes(v128.load(from, 18), d, zero, to + 64);
      }
      return;
    case IQ4_NL:
      for (let i = 0; i < count; i += 32, from += 18, to += 128) {
        levels(v128.load(from, 2), iq4Levels(), half(from), to);
      }
      return;
    case MXFP4:
      for (let i = 0; i < count; i += 32, from += 17, to += 128) {
        // 2^(byte - 128) in two factors: both ends of the range are outside of the normal numbers
        const exponent = <i32>load<u8>(from);
        const scale = power2(exponent - 64) * power2(-64);
        levels(
          v128.load(from, 1),
          i8x16(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12),
          f32x4.splat(scale),
          to,
        );
      }
      return;
    case Q2_K:
      for (let i = 0; i < count; i += 256, from += 84, to += 1024) decodeQ2K(from, to);
      return;
    case Q3_K:
      for (let i = 0; i < count; i += 256, from += 110, to += 1024) decodeQ3K(from, to);
      return;
    case Q4_K:
      for (let i = 0; i < count; i += 256, from += 144, to += 1024) decodeQ4K(from, to);
      return;
    case Q5_K:
      for (let i = 0; i < count; i += 256, from += 176, to += 1024) decodeQ5K(from, to);
      return;
    case Q6_K:
      for (let i = 0; i < count; i += 256, from += 210, to += 1024) decodeQ6K(from, to);
      return;
    case IQ4_XS:
      for (let i = 0; i < count; i += 256, from += 136, to += 1024) decodeIq4Xs(from, to);
      return;
    case TQ2_0:
      for (let i = 0; i < count; i += 256, from += 66, to += 1024) decodeTq2(from, to);
      return;
    default: {
      const blockBytes = gridBlockBytes(dtype);
      for (let i = 0; i < count; i += 256, from += blockBytes, to += 1024) decodeGridBlock(dtype, from, to);
    }
  }
}

/** The binary16 at an address in all four lanes, as f32. */
function half(at: usize): v128 {
  return halfToFloat4(i32x4.splat(load<u16>(at)));
}

function power2(exponent: i32): f32 {
  return reinterpret<f32>((exponent + 127) << 23);
}

/** 16 signed codes to `code * scale + offset`. */
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

function lowNibbles(packed: v128): v128 {
  return v128.and(packed, i8x16.splat(15));
}
function highNibbles(packed: v128): v128 {
  return v128.and(i16x8.shr_u(packed, 4), i8x16.splat(15));
}

function nibbles(packed: v128, zero: i32, scale: v128, offset: v128, to: usize): void {
  const bias = i8x16.splat(<i8>zero);
  codes(i8x16.sub(lowNibbles(packed), bias), scale, offset, to);
  codes(i8x16.sub(highNibbles(packed), bias), scale, offset, to + 64);
}

/** 16 bytes that are 16 where the bit of `bits` is set. */
function fifthBits(bits: u32): v128 {
  const spread = i8x16.swizzle(i32x4.splat(bits), i8x16(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
  const mask = i8x16(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  return v128.and(i8x16.eq(v128.and(spread, mask), mask), i8x16.splat(16));
}

function fiveBits(packed: v128, bits: u32, zero: i32, scale: v128, offset: v128, to: usize): void {
  const bias = i8x16.splat(<i8>zero);
  codes(i8x16.sub(v128.or(lowNibbles(packed), fifthBits(bits)), bias), scale, offset, to);
  codes(i8x16.sub(v128.or(highNibbles(packed), fifthBits(bits >> 16)), bias), scale, offset, to + 64);
}

function iq4Levels(): v128 {
  return i8x16(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

function levels(packed: v128, table: v128, scale: v128, to: usize): void {
  const zero = f32x4.splat(0);
  codes(i8x16.swizzle(table, lowNibbles(packed)), scale, zero, to);
  codes(i8x16.swizzle(table, highNibbles(packed)), scale, zero, to + 64);
}

function decodeF16(from: usize, to: usize, count: i32): void {
  const mask = halfMask();
  const magnitude = magnitudeMask();
  const least = leastNormal();
  const largest = largestRank();
  const offset = halfOffset();
  let i = 0;
  for (; i + 8 <= count; i += 8, from += 16, to += 32) {
    const v = v128.load(from);
    // eight normal numbers need a shift and an addition only; see f16-dot.ts
    if (v128.any_true(i16x8.gt_u(i16x8.sub(v128.and(v, magnitude), least), largest))) {
      v128.store(to, halfToFloat4(i32x4.extend_low_i16x8_u(v)));
      v128.store(to, halfToFloat4(i32x4.extend_high_i16x8_u(v)), 16);
      continue;
    }
    v128.store(to, i32x4.add(v128.and(i32x4.shl(i32x4.extend_low_i16x8_s(v), 13), mask), offset));
    v128.store(to, i32x4.add(v128.and(i32x4.shl(i32x4.extend_high_i16x8_s(v), 13), mask), offset), 16);
  }
  for (; i < count; i++, from += 2, to += 4) store<f32>(to, halfToFloat(load<u16>(from)));
}

function decodeBf16(from: usize, to: usize, count: i32): void {
  let i = 0;
  for (; i + 4 <= count; i += 4, from += 8, to += 16) v128.store(to, i32x4.shl(v128.load16x4_u(from), 16));
  for (; i < count; i++, from += 2, to += 4) store<u32>(to, (<u32>load<u16>(from)) << 16);
}

/** Two bits of each byte: `shift` is 0, 2, 4 or 6. */
function twoBits(packed: v128, shift: i32): v128 {
  return v128.and(i16x8.shr_u(packed, shift), i8x16.splat(3));
}

function decodeQ2K(from: usize, to: usize): void {
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

function decodeQ3K(from: usize, to: usize): void {
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

function decodeQ4K(from: usize, to: usize): void {
  const d = half(from);
  const dmin = half(from + 2);
  for (let sub = 0; sub < 8; sub++, to += 128) {
    const scale = f32x4.mul(d, f32x4.splat(<f32>scaleOf(from + 4, sub)));
    const offset = f32x4.neg(f32x4.mul(dmin, f32x4.splat(<f32>minOf(from + 4, sub))));
    const at = from + 16 + ((sub >> 1) << 5);
    const first = v128.load(at);
    const second = v128.load(at, 16);
    if ((sub & 1) === 0) {
      codes(lowNibbles(first), scale, offset, to);
      codes(lowNibbles(second), scale, offset, to + 64);
    } else {
      codes(highNibbles(first), scale, offset, to);
      codes(highNibbles(second), scale, offset, to + 64);
    }
  }
}

function decodeQ5K(from: usize, to: usize): void {
  const d = half(from);
  const dmin = half(from + 2);
  const high0 = v128.load(from, 16);
  const high1 = v128.load(from, 32);
  for (let sub = 0; sub < 8; sub++, to += 128) {
    const scale = f32x4.mul(d, f32x4.splat(<f32>scaleOf(from + 4, sub)));
    const offset = f32x4.neg(f32x4.mul(dmin, f32x4.splat(<f32>minOf(from + 4, sub))));
    const at = from + 48 + ((sub >> 1) << 5);
    const first = v128.load(at);
    const second = v128.load(at, 16);
    const bit = i8x16.splat((<i8>1) << (<i8>sub));
    const five0 = v128.and(i8x16.eq(v128.and(high0, bit), bit), i8x16.splat(16));
    const five1 = v128.and(i8x16.eq(v128.and(high1, bit), bit), i8x16.splat(16));
    if ((sub & 1) === 0) {
      codes(v128.or(lowNibbles(first), five0), scale, offset, to);
      codes(v128.or(lowNibbles(second), five1), scale, offset, to + 64);
    } else {
      codes(v128.or(highNibbles(first), five0), scale, offset, to);
      codes(v128.or(highNibbles(second), five1), scale, offset, to + 64);
    }
  }
}

function decodeQ6K(from: usize, to: usize): void {
  const d = half(from + 208);
  const zero = f32x4.splat(0);
  for (let sub = 0; sub < 16; sub++, to += 64) {
    const scale = f32x4.mul(d, f32x4.splat(<f32>load<i8>(from + 192 + sub)));
    const halfBlock = sub >> 3;
    const quarter = (sub >> 1) & 3;
    const low = v128.load(from + (halfBlock << 6) + ((quarter & 1) << 5) + ((sub & 1) << 4));
    const high = v128.load(from + 128 + (halfBlock << 5) + ((sub & 1) << 4));
    const four = quarter >> 1 === 0 ? lowNibbles(low) : highNibbles(low);
    const two = i16x8.shl(twoBits(high, quarter << 1), 4);
    codes(i8x16.sub(v128.or(four, two), i8x16.splat(32)), scale, zero, to);
  }
}

function decodeIq4Xs(from: usize, to: usize): void {
  const d = half(from);
  const scalesHigh = <i32>load<u16>(from, 2);
  for (let sub = 0; sub < 8; sub++, to += 128) {
    const low = (<i32>load<u8>(from + 4 + (sub >> 1)) >> ((sub & 1) << 2)) & 15;
    const scale = (low | (((scalesHigh >> (sub << 1)) & 3) << 4)) - 32;
    levels(v128.load(from + 8 + (sub << 4)), iq4Levels(), f32x4.mul(d, f32x4.splat(<f32>scale)), to);
  }
}

function decodeTq2(from: usize, to: usize): void {
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
