/**
 * Dequantizes the codebook formats (iq1, iq2, iq3) and tq1_0 to f32, bit for bit like the codecs of `@winnow/tensor`, which
 * document the layouts. The host writes the codebooks to the addresses in `layout.generated.ts`.
 */
import * as layout from '../runtime/layout.generated';
import { halfToFloat } from '../simd/vector';

/** `2 * code + 1` */
function odd(code: u32): f32 {
  const n: u32 = (code << 1) + 1;
  return <f32>n;
}

/** Seven sign bits plus an eighth that makes their parity even. */
function evenSigns(seven: u32): u32 {
  return seven | ((popcnt(seven) & 1) << 7);
}

/** Writes eight signed 16-bit elements times a scale, negating those whose bit of `signs` is set. */
function writeSigned(elements: v128, signs: u32, scale: f32, to: usize): void {
  const bits = i16x8(1, 2, 4, 8, 16, 32, 64, 128);
  const isNegative = i16x8.eq(v128.and(i16x8.splat(<i16>signs), bits), bits);
  const signed = i16x8.sub(v128.xor(elements, isNegative), isNegative);
  const factor = f32x4.splat(scale);
  v128.store(to, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(signed)), factor));
  v128.store(to, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(signed)), factor), 16);
}

/** Two codebook vectors of four elements, concatenated. */
function pairOf(first: usize, second: usize): v128 {
  return i16x8.extend_low_i8x16_s(i32x4(load<i32>(first), load<i32>(second), 0, 0));
}

export function dequantizeIq2Xxs(from: usize, to: usize): void {
  const d = halfToFloat(load<u16>(from));
  for (let sub: usize = 0; sub < 8; sub++) {
    const codes = from + 2 + (sub << 3);
    const word = load<u32>(codes, 4);
    const scale = d * (<f32>0.5 + <f32>(word >> 28)) * <f32>0.25;
    for (let group: usize = 0; group < 4; group++, to += 32) {
      const elements = v128.load8x8_s(layout.IQ2_XXS_GRID + ((<usize>load<u8>(codes + group)) << 3));
      writeSigned(elements, evenSigns((word >> (<u32>group * 7)) & 127), scale, to);
    }
  }
}

/** The scale of a group: groups 2k and 2k + 1 share a nibble. */
function nibbleScale(d: f32, at: usize, group: usize): f32 {
  const code = (<u32>load<u8>(at + (group >> 2)) >> ((<u32>group & 2) << 1)) & 15;
  return d * (<f32>0.5 + <f32>code) * <f32>0.25;
}

export function dequantizeIq2Xs(from: usize, to: usize): void {
  const d = halfToFloat(load<u16>(from));
  for (let group: usize = 0; group < 32; group++, to += 32) {
    const word = <u32>load<u16>(from + 2 + (group << 1));
    const elements = v128.load8x8_s(layout.IQ2_XS_GRID + ((<usize>(word & 511)) << 3));
    writeSigned(elements, evenSigns(word >> 9), nibbleScale(d, from + 66, group), to);
  }
}

export function dequantizeIq2S(from: usize, to: usize): void {
  const d = halfToFloat(load<u16>(from));
  for (let group: usize = 0; group < 32; group++, to += 32) {
    const high = (<usize>load<u8>(from + 66 + (group >> 2)) >> ((group & 3) << 1)) & 3;
    const elements = v128.load8x8_s(layout.IQ2_S_GRID + ((<usize>load<u8>(from + 2 + group) | (high << 8)) << 3));
    writeSigned(elements, load<u8>(from + 34 + group), nibbleScale(d, from + 74, group), to);
  }
}

export function dequantizeIq3Xxs(from: usize, to: usize): void {
  const d = halfToFloat(load<u16>(from));
  for (let sub: usize = 0; sub < 8; sub++) {
    const word = load<u32>(from + 66 + (sub << 2));
    const scale = d * (<f32>0.5 + <f32>(word >> 28)) * <f32>0.5;
    for (let group: usize = 0; group < 4; group++, to += 32) {
      const codes = from + 2 + (sub << 3) + (group << 1);
      const first = layout.IQ3_XXS_GRID + ((<usize>load<u8>(codes)) << 2);
      const second = layout.IQ3_XXS_GRID + ((<usize>load<u8>(codes, 1)) << 2);
      writeSigned(pairOf(first, second), evenSigns((word >> (<u32>group * 7)) & 127), scale, to);
    }
  }
}

export function dequantizeIq3S(from: usize, to: usize): void {
  const d = halfToFloat(load<u16>(from));
  for (let pair: usize = 0; pair < 32; pair++, to += 32) {
    const sub = pair >> 2;
    const high = <usize>load<u8>(from + 66 + sub) >> ((pair & 3) << 1);
    const codes = from + 2 + (pair << 1);
    const first = layout.IQ3_S_GRID + ((<usize>load<u8>(codes) | ((high & 1) << 8)) << 2);
    const second = layout.IQ3_S_GRID + ((<usize>load<u8>(codes, 1) | ((high & 2) << 7)) << 2);
    const code = (<u32>load<u8>(from + 106 + (sub >> 1)) >> ((<u32>sub & 1) << 2)) & 15;
    writeSigned(pairOf(first, second), load<u8>(from + 74 + pair), d * odd(code), to);
  }
}

/** Writes a vector of the iq1 codebook, shifted up or down by an eighth, times a scale. */
function writeShifted(vector: usize, isDown: bool, scale: f32, to: usize): void {
  const elements = v128.load8x8_s(layout.IQ1_S_GRID + (vector << 3));
  const shift = f32x4.splat(isDown ? -0.125 : 0.125);
  const factor = f32x4.splat(scale);
  const low = f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(elements));
  const high = f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(elements));
  v128.store(to, f32x4.mul(f32x4.add(low, shift), factor));
  v128.store(to, f32x4.mul(f32x4.add(high, shift), factor), 16);
}

export function dequantizeIq1S(from: usize, to: usize): void {
  const d = halfToFloat(load<u16>(from));
  for (let group: usize = 0; group < 32; group++, to += 32) {
    const word = <u32>load<u16>(from + 34 + ((group >> 2) << 1));
    const high = <usize>(word >> ((<u32>group & 3) * 3)) & 7;
    const scale = d * odd((word >> 12) & 7);
    writeShifted(<usize>load<u8>(from + 2 + group) | (high << 8), (word & 0x8000) !== 0, scale, to);
  }
}

export function dequantizeIq1M(from: usize, to: usize): void {
  const scales = from + 48;
  const d = halfToFloat(
    (<u32>load<u16>(scales) >> 12) |
      ((<u32>load<u16>(scales, 2) >> 8) & 0xf0) |
      ((<u32>load<u16>(scales, 4) >> 4) & 0xf00) |
      (<u32>load<u16>(scales, 6) & 0xf000),
  );
  for (let group: usize = 0; group < 32; group++, to += 32) {
    const nibble = <usize>load<u8>(from + 32 + (group >> 1)) >> ((group & 1) << 2);
    const code = (<u32>load<u16>(scales + ((group >> 3) << 1)) >> (((<u32>group >> 1) & 3) * 3)) & 7;
    const vector = <usize>load<u8>(from + group) | ((nibble & 7) << 8);
    writeShifted(vector, (nibble & 8) !== 0, d * odd(code), to);
  }
}

export function dequantizeTq1(from: usize, to: usize): void {
  const d = f32x4.splat(halfToFloat(load<u16>(from, 52)));
  let power: i32 = 1;
  for (let trit: usize = 0; trit < 5; trit++, power *= 3) {
    writeTrits(v128.load(from), power, d, to + (trit << 7));
    writeTrits(v128.load(from, 16), power, d, to + (trit << 7) + 64);
    writeTrits(v128.load(from, 32), power, d, to + 640 + (trit << 6));
  }
  power = 1;
  for (let trit: usize = 0; trit < 4; trit++, power *= 3) {
    const four = trits8(i16x8.extend_low_i8x16_u(v128.load32_zero(from, 48)), power);
    v128.store(to + 960 + (trit << 4), f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(four)), d));
  }
}

/** One trit of each of eight bytes, minus one: see the codec. */
function trits8(bytes: v128, power: i32): v128 {
  const fraction = v128.and(i16x8.mul(bytes, i16x8.splat(<i16>power)), i16x8.splat(255));
  return i16x8.sub(i16x8.shr_u(i16x8.mul(fraction, i16x8.splat(3)), 8), i16x8.splat(1));
}

function writeTrits(bytes: v128, power: i32, d: v128, to: usize): void {
  const low = trits8(i16x8.extend_low_i8x16_u(bytes), power);
  const high = trits8(i16x8.extend_high_i8x16_u(bytes), power);
  v128.store(to, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(low)), d));
  v128.store(to, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(low)), d), 16);
  v128.store(to, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(high)), d), 32);
  v128.store(to, f32x4.mul(f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(high)), d), 48);
}
