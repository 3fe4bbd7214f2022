/**
 * qgemm: one block of four interleaved rows times many tokens, whose codes and metas are contiguous. In relaxed builds the eight
 * vectors of codes stay in registers.
 */
import { Q4_0, Q6_K, Q8_0 } from '../quant/dequantize';
import { SIDE_BYTES } from '../quant/quantize-activations';
import { halfFactor, halfMask } from '../simd/constants.generated';
import { qgemvInt16 } from './int16-dot';
import { hasMaddubs, hasUsdot } from '../quant/int8-dot';
import { scales4 } from './k-quants';
import * as kernels from './qgemm.generated';
import { FIRST_FLOATS, META_BYTES, META_START_Q8 } from '../runtime/layout.generated';

/**
 * Adds an unpacked block (see unpacked-groups.ts) times tokens to `sums[token][4]`, padded to a multiple of four tokens.
 * `initial` is the offset of the initial integer sum in a meta, see `initialOf`.
 */
export function qgemmBlock(
  dtype: i32,
  p: usize,
  x: usize,
  meta: usize,
  initial: usize,
  sums: usize,
  numTokens: i32,
): void {
  const scale = v128.load(p, FIRST_FLOATS);
  if (!ASC_FEATURE_RELAXED_SIMD) int16(dtype, p, x, meta, initial, sums, numTokens);
  else if (dtype === Q8_0 && !hasUsdot()) signMagnitude(p, scale, x, meta, sums, numTokens);
  else if (hasMaddubs()) maddubs(dtype, p, scale, x, meta, sums, numTokens);
  else if (dtype === Q8_0 || dtype === Q4_0) kernels.qgemmScaled(p, scale, x, meta, meta + initial, sums, numTokens);
  else if (dtype === Q6_K) kernels.qgemmHalves(p, scale, x, meta, meta + initial, sums, numTokens);
  else kernels.qgemmOffset(p, scale, x, meta, meta + initial, sums, numTokens);
}

/** One token at a time, with 16-bit dot products. */
function int16(dtype: i32, p: usize, x: usize, meta: usize, initial: usize, sums: usize, numTokens: i32): void {
  for (const end = sums + ((<usize>numTokens) << 4); sums < end; sums += 16, x += SIDE_BYTES, meta += META_BYTES) {
    v128.store(sums, qgemvInt16(p, 1, x, meta, initial, dtype === Q6_K, v128.load(sums)));
  }
}

function maddubs(dtype: i32, p: usize, scale: v128, x: usize, meta: usize, sums: usize, numTokens: i32): void {
  if (dtype === Q4_0) kernels.qgemmScaledMaddubs(p, scale, x, meta, sums, numTokens);
  else if (dtype === Q6_K) kernels.qgemmHalvesMaddubs(p, scale, x, meta, sums, numTokens);
  else kernels.qgemmOffsetMaddubs(p, scale, x, meta, sums, numTokens);
}

/** The same for a repacked block of q8_0, whose codes are bytes already. */
export function qgemmRepackedQ8(block: usize, x: usize, meta: usize, sums: usize, numTokens: i32): void {
  const scale = scales4(block, halfMask(), halfFactor());
  if (hasUsdot()) kernels.qgemmScaled(block + 8, scale, x, meta, meta + META_START_Q8, sums, numTokens);
  else signMagnitude(block + 8, scale, x, meta, sums, numTokens);
}

function signMagnitude(p: usize, scale: v128, x: usize, meta: usize, sums: usize, numTokens: i32): void {
  if (hasMaddubs()) kernels.qgemmSignMagnitude<i16>(p, scale, x, meta, sums, numTokens);
  else kernels.qgemmSignMagnitude<i32>(p, scale, x, meta, sums, numTokens);
}
