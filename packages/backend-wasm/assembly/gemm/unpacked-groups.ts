/**
 * Unpacks groups of four interleaved rows to one common form, per block of 32 columns: eight vectors of unsigned codes, then
 * two vectors of four floats, a and b. With these, the product of a block with codes x of scale d is
 *   q8_0 q4_0   d a (codes - zero) x
 *   q4_K q5_K   d a codes x + b sum(d x)
 *   q6_K        d (a (codes - 32) x over the first half + b (codes - 32) x over the second)
 */
import {
  Q4_0,
  Q4_K,
  Q5_K,
  Q8_0,
  Q8_0_BLOCK_BYTES,
  Q4_0_BLOCK_BYTES,
  Q4_K_BLOCK_BYTES,
  Q5_K_BLOCK_BYTES,
  Q6_K_BLOCK_BYTES,
} from '../quant/dequantize';
import { byteMask, halfFactor, halfMask, nibbleMask, pairMask } from '../simd/constants.generated';
import { META_MINUS_32, META_MINUS_8, META_START_Q8, META_ZERO } from '../runtime/layout.generated';
import { FIRST_FLOATS, GROUP_SIZE, SECOND_FLOATS, UNPACKED_BYTES } from '../runtime/layout.generated';
import * as layout from '../runtime/layout.generated';
import { highNibbles, lowNibbles } from '../simd/vector';
import { fifthBit, lowByte, minsK, scales4, scalesK } from './k-quants';

/** Offset of the initial integer sum in the meta of a block of activations: it corrects for the zero point of codes. */
export function initialOf(dtype: i32): usize {
  if (dtype === Q8_0) return META_START_Q8;
  if (dtype === Q4_0) return META_MINUS_8;
  if (dtype === Q4_K || dtype === Q5_K) return META_ZERO;
  return META_MINUS_32;
}

/** Unpacks blocks `[begin, end)` of 32 columns of a group; `begin` starts a super-block. */
export function unpackGroup(dtype: i32, group: usize, begin: i32, end: i32, to: usize): void {
  for (let block = begin; block < end; block++, to += UNPACKED_BYTES) {
    if (dtype === Q8_0) unpackQ8(group + <usize>block * (Q8_0_BLOCK_BYTES * GROUP_SIZE), to);
    else if (dtype === Q4_0) unpackQ4(group + <usize>block * (Q4_0_BLOCK_BYTES * GROUP_SIZE), to);
    else if (dtype === Q4_K)
      unpackK(group + <usize>(block >> 3) * (Q4_K_BLOCK_BYTES * GROUP_SIZE), block & 7, layout.NIBBLES_AT_Q4_K, 0, to);
    else if (dtype === Q5_K)
      unpackK(
        group + <usize>(block >> 3) * (Q5_K_BLOCK_BYTES * GROUP_SIZE),
        block & 7,
        layout.NIBBLES_AT_Q5_K,
        layout.FIFTHS_AT_Q5_K,
        to,
      );
    else unpackQ6K(group + <usize>(block >> 3) * (Q6_K_BLOCK_BYTES * GROUP_SIZE), block & 7, to);
  }
}

/** Stores a scale per row as the first vector of floats, and zeros as the second. */
function storeScales(at: usize, to: usize): void {
  v128.store(to, scales4(at, halfMask(), halfFactor()), FIRST_FLOATS);
  v128.store(to, f32x4.splat(0), SECOND_FLOATS);
}

function unpackQ8(at: usize, to: usize): void {
  memory.copy(to, at + 8, FIRST_FLOATS);
  storeScales(at, to);
}

function unpackQ4(at: usize, to: usize): void {
  const low = nibbleMask();
  for (let j: usize = 0; j < 64; j += 16) {
    const packed = v128.load(at + j, 8);
    v128.store(to + j, lowNibbles(packed, low));
    v128.store(to + j, highNibbles(packed, low), 64);
  }
  storeScales(at, to);
}

/** Unpacks sub-block `sub` of q4_K or q5_K. */
function unpackK(at: usize, sub: i32, nibbles: usize, fifths: usize, to: usize): void {
  const low = nibbleMask();
  const sixteen = v128.and(pairMask(), i32x4.splat(0x10101010));
  const codes = at + nibbles + ((<usize>(sub >> 1)) << 7);
  for (let j: usize = 0; j < FIRST_FLOATS; j += 16) {
    const packed = v128.load(codes + j);
    let code = (sub & 1) === 0 ? lowNibbles(packed, low) : highNibbles(packed, low);
    if (fifths !== 0) code = v128.or(code, fifthBit(v128.load(at + fifths + j), sub, sixteen));
    v128.store(to + j, code);
  }
  const shift = (sub & 3) << 3;
  const scales = lowByte(i32x4.shr_u(scalesK(at + layout.SCALES_AT_K, sub >= 4, low), shift), byteMask());
  const mins = lowByte(i32x4.shr_u(minsK(at + layout.SCALES_AT_K, sub >= 4, low), shift), byteMask());
  v128.store(to, f32x4.mul(scales4(at, halfMask(), halfFactor()), scales), FIRST_FLOATS);
  v128.store(to, f32x4.neg(f32x4.mul(scales4(at + 8, halfMask(), halfFactor()), mins)), SECOND_FLOATS);
}

/** Unpacks block `half * 4 + quarter` of a super-block. */
function unpackQ6K(at: usize, block: i32, to: usize): void {
  const half = <usize>(block >> 2);
  const quarter = block & 3;
  const nibbles = at + layout.NIBBLES_AT_Q6_K + (half << 8) + ((<usize>(quarter & 1)) << 7);
  const twos = at + layout.PAIRS_AT_Q6_K + (half << 7);
  const low = nibbleMask();
  const three = i8x16.splat(3);
  for (let j: usize = 0; j < FIRST_FLOATS; j += 16) {
    const packed = v128.load(nibbles + j);
    const four = quarter < 2 ? lowNibbles(packed, low) : highNibbles(packed, low);
    const two = v128.and(i16x8.shr_u(v128.load(twos + j), quarter << 1), three);
    v128.store(to + j, v128.or(four, i16x8.shl(two, 4)));
  }
  // sub-blocks of 16: two per block
  const sub = block << 1;
  const scales = v128.load(at + layout.SCALES_AT_Q6_K + ((<usize>(sub >> 2)) << 4));
  const d = scales4(at, halfMask(), halfFactor());
  v128.store(to, f32x4.mul(d, signedByte(scales, sub & 3)), FIRST_FLOATS);
  v128.store(to, f32x4.mul(d, signedByte(scales, (sub + 1) & 3)), SECOND_FLOATS);
}

/** Byte `sub` of every lane, signed, as a float. */
function signedByte(v: v128, sub: i32): v128 {
  return f32x4.convert_i32x4_s(i32x4.shr_s(i32x4.shl(v, 24 - (sub << 3)), 24));
}
