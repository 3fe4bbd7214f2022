/**
 * axpy for many tokens: rows of q8_0 and q4_0, each with the coefficient h of its neuron, 32 at a time. For each block of 32
 * columns, h times the scales of the 32 rows is quantized to 8-bit integers with a common step, as GEMM does with activations;
 * the error is at most half a step, 1/254 of the largest. Four rows at a time are interleaved byte by byte, once for all tokens,
 * so that one dot product instruction covers four rows and four columns.
 */
import { hasMaddubs, hasUsdot } from '../quant/int8-dot';
import { flipSigns, nibbleMask } from '../simd/constants.generated';
import { highBytes, highPairs, lowBytes, lowPairs } from '../simd/interleave';
import { addNeighbors, highNibbles, lowNibbles } from '../simd/vector';
import { addColumns } from './axpy-coefficients';
import { axpyCodes, axpyNibbles } from './axpy-tokens.generated';
import { QUAD_BYTES } from '../runtime/layout.generated';

/** Rows per pass. */
export const ROWS: i32 = 32;
/** Bytes of the scales of one block of all rows. */
export const SCALES_BYTES: usize = 64;
/** Bytes of an interleaved block of all rows. */
export const INTERLEAVED_BYTES: usize = <usize>(ROWS >> 2) * QUAD_BYTES;

/** Gathers the scales of one block of all rows. */
export function gatherScales(rows: usize, offset: usize, to: usize): void {
  for (const end = to + SCALES_BYTES; to < end; to += 2, rows += 4)
    store<u16>(to, load<u16>(<usize>load<u32>(rows) + offset));
}

/**
 * Interleaves one block of all rows: every four rows give eight vectors of unsigned codes, four columns each. Codes begin
 * `offset` bytes after the addresses at `rows`; `flip` makes them unsigned.
 */
export function interleaveBlock(isQ4: bool, rows: usize, offset: usize, flip: i8, numQuads: i32, to: usize): void {
  const low = nibbleMask();
  const flips = i8x16.splat(flip);
  const numHalves: usize = isQ4 ? 1 : 2;
  for (let quad = 0; quad < numQuads; quad++, rows += 16, to += QUAD_BYTES) {
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

/** Adds an interleaved block, times its coefficients, to `y[32]`. */
export function axpyInterleaved(
  isQ4: bool,
  codes: usize,
  numQuads: i32,
  coefficients: usize,
  scale: f32,
  y: usize,
): void {
  if (!ASC_FEATURE_RELAXED_SIMD) axpyInt16(isQ4 ? 8 : 128, codes, numQuads, coefficients, scale, y);
  else if (isQ4 && hasMaddubs()) axpyNibbles(codes, numQuads, coefficients, scale, y);
  else if (isQ4) axpyCodes<u8>(i8x16.splat(8), codes, numQuads, coefficients, scale, y);
  else if (hasUsdot()) axpyCodes<u8>(flipSigns(), codes, numQuads, coefficients, scale, y);
  else if (hasMaddubs()) axpyCodes<i16>(flipSigns(), codes, numQuads, coefficients, scale, y);
  else axpyCodes<i32>(flipSigns(), codes, numQuads, coefficients, scale, y);
}

/** The same with 16-bit dot products, for builds without relaxed SIMD; `zero` is the zero point of the codes. */
function axpyInt16(zero: i32, codes: usize, numQuads: i32, coefficients: usize, scale: f32, y: usize): void {
  let total = 0;
  for (let i: usize = 0; i < (<usize>numQuads) << 2; i++) total += load<i8>(coefficients + i);
  const excess = i32x4.splat(total * zero);
  const factor = f32x4.splat(scale);
  for (let v: usize = 0; v < QUAD_BYTES; v += 16) {
    let even = i32x4.splat(0);
    let odd = even;
    let from = codes + v;
    for (let quad: usize = 0; quad < <usize>numQuads; quad++, from += QUAD_BYTES) {
      const h = i16x8.extend_low_i8x16_s(v128.load32_splat(coefficients + (quad << 2)));
      const c = v128.load(from);
      even = i32x4.add(even, i32x4.dot_i16x8_s(i16x8.extend_low_i8x16_u(c), h));
      odd = i32x4.add(odd, i32x4.dot_i16x8_s(i16x8.extend_high_i8x16_u(c), h));
    }
    addColumns(y + v, i32x4.sub(addNeighbors(even, odd), excess), factor);
  }
}
