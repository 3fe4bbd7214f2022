/**
 * Packed groups of four rows to one common form, per block of 32 columns: eight vectors of unsigned codes, then two
 * vectors of four floats. With a, b as these, the product of a block with codes x of scale d is
 *   q8_0 q4_0   d a (codes - zero) x
 *   q4_K q5_K   d a codes x + b sum(d x)
 *   q6_K        d (a (codes - 32) x over the first half + b (codes - 32) x over the second)
 */
import { halfFactor, halfMask } from '../simd/constants';
import { Q4_0, Q4_K, Q5_K, Q8_0 } from '../quant/dequantize';
import { META_MINUS_32, META_MINUS_8, META_START_Q8, META_ZERO } from '../quant/quantize-activations';

export const EXPANDED_BYTES: usize = 160;

/** Where the meta of a block of activations has what sums of codes begin with. */
export function initialOf(dtype: i32): usize {
  if (dtype === Q8_0) return META_START_Q8;
  if (dtype === Q4_0) return META_MINUS_8;
  if (dtype === Q4_K || dtype === Q5_K) return META_ZERO;
  return META_MINUS_32;
}

/** Four packed scales: normal numbers or zeros only, see repack.ts. */
export function scales4(at: usize, mask: v128, factor: v128): v128 {
  return f32x4.mul(v128.and(i32x4.shl(v128.load16x4_s(at), 13), mask), factor);
}

/** Byte `sub` of every lane as a float. */
export function lane8(v: v128, sub: i32): v128 {
  return f32x4.convert_i32x4_s(v128.and(i32x4.shr_u(v, sub << 3), i32x4.splat(255)));
}

/** Six-bit scales of four rows, sub-blocks 0..3 or 4..7 as the bytes of each lane. `at` is where the scales begin. */
function scalesK(at: usize, isHigh: bool): v128 {
  if (!isHigh) return v128.and(v128.load(at), i8x16.splat(63));
  const low = v128.and(v128.load(at, 32), i8x16.splat(15));
  return v128.or(low, v128.and(i32x4.shr_u(v128.load(at), 2), i8x16.splat(0x30)));
}
function minsK(at: usize, isHigh: bool): v128 {
  if (!isHigh) return v128.and(v128.load(at, 16), i8x16.splat(63));
  const low = v128.and(i32x4.shr_u(v128.load(at, 32), 4), i8x16.splat(15));
  return v128.or(low, v128.and(i32x4.shr_u(v128.load(at, 16), 2), i8x16.splat(0x30)));
}

/** The bit of sub-block `sub` of every byte, as 0 or 16. */
export function fifthBit(bits: v128, sub: i32): v128 {
  const moved = sub < 4 ? i16x8.shl(bits, 4 - sub) : i16x8.shr_u(bits, sub - 4);
  return v128.and(moved, i8x16.splat(16));
}

/** Expands blocks `[begin, end)` of 32 columns of a packed group; `begin` is the first of a super-block. */
export function expandGroup(dtype: i32, group: usize, begin: i32, end: i32, to: usize): void {
  if (dtype === Q8_0) {
    let at = group + <usize>begin * 136;
    for (let block = begin; block < end; block++, at += 136, to += EXPANDED_BYTES) {
      memory.copy(to, at + 8, 128);
      v128.store(to, scales4(at, halfMask(), halfFactor()), 128);
      v128.store(to, f32x4.splat(0), 144);
    }
    return;
  }
  if (dtype === Q4_0) {
    let at = group + <usize>begin * 72;
    for (let block = begin; block < end; block++, at += 72, to += EXPANDED_BYTES) {
      for (let j: usize = 0; j < 64; j += 16) {
        const packed = v128.load(at + j, 8);
        v128.store(to + j, lowNibbles(packed));
        v128.store(to + j, highNibbles(packed), 64);
      }
      v128.store(to, scales4(at, halfMask(), halfFactor()), 128);
      v128.store(to, f32x4.splat(0), 144);
    }
    return;
  }
  for (let block = begin; block < end; block++, to += EXPANDED_BYTES) {
    if (dtype === Q4_K) expandK(group + <usize>(block >> 3) * 576, block & 7, 64, 0, to);
    else if (dtype === Q5_K) expandK(group + <usize>(block >> 3) * 704, block & 7, 192, 64, to);
    else expandQ6K(group + <usize>(block >> 3) * 840, block & 7, to);
  }
}

function lowNibbles(packed: v128): v128 {
  return v128.and(packed, i8x16.splat(15));
}
function highNibbles(packed: v128): v128 {
  return v128.and(i16x8.shr_u(packed, 4), i8x16.splat(15));
}

function expandK(at: usize, sub: i32, nibbles: usize, fifths: usize, to: usize): void {
  const codes = at + nibbles + ((<usize>(sub >> 1)) << 7);
  for (let j: usize = 0; j < 128; j += 16) {
    const packed = v128.load(codes + j);
    let code = (sub & 1) === 0 ? lowNibbles(packed) : highNibbles(packed);
    if (fifths !== 0) code = v128.or(code, fifthBit(v128.load(at + fifths + j), sub));
    v128.store(to + j, code);
  }
  const isHigh = sub >= 4;
  v128.store(to, f32x4.mul(scales4(at, halfMask(), halfFactor()), lane8(scalesK(at + 16, isHigh), sub & 3)), 128);
  v128.store(
    to,
    f32x4.neg(f32x4.mul(scales4(at + 8, halfMask(), halfFactor()), lane8(minsK(at + 16, isHigh), sub & 3))),
    144,
  );
}

/** `block` is half * 4 + quarter of a super-block. */
function expandQ6K(at: usize, block: i32, to: usize): void {
  const half = <usize>(block >> 2);
  const quarter = block & 3;
  const low = at + 72 + (half << 8) + ((<usize>(quarter & 1)) << 7);
  const high = at + 584 + (half << 7);
  for (let j: usize = 0; j < 128; j += 16) {
    const packed = v128.load(low + j);
    const four = quarter < 2 ? lowNibbles(packed) : highNibbles(packed);
    const two = v128.and(i16x8.shr_u(v128.load(high + j), quarter << 1), i8x16.splat(3));
    v128.store(to + j, v128.or(four, i16x8.shl(two, 4)));
  }
  // sub-blocks of 16: two per block
  const sub = block << 1;
  const scales = v128.load(at + 8 + ((<usize>(sub >> 2)) << 4));
  const d = scales4(at, halfMask(), halfFactor());
  v128.store(to, f32x4.mul(d, signed8(scales, sub & 3)), 128);
  v128.store(to, f32x4.mul(d, signed8(scales, (sub + 1) & 3)), 144);
}

/** Byte `sub` of every lane, signed, as a float. */
export function signed8(v: v128, sub: i32): v128 {
  return f32x4.convert_i32x4_s(i32x4.shr_s(i32x4.shl(v, 24 - (sub << 3)), 24));
}
