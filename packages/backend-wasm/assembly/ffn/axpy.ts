/**
 * axpy over eight rows of q8_0 or q4_0: adds the rows, each times a factor h, to the sums of all columns. Registers of four rows
 * are interleaved byte by byte to feed 4-way dot products. Relaxed builds only.
 */
import { hasMaddubs, hasUsdot } from '../quant/int8-dot';
import { flipSigns } from '../simd/constants.generated';
import { COEFFICIENTS_BYTES, areNormal } from './axpy-coefficients';
import { storeCoefficients } from './axpy-coefficients.generated';
import { axpyBlocks } from './axpy.generated';
import { Q8_0_BLOCK_BYTES, Q4_0_BLOCK_BYTES } from '../quant/dequantize';
import { SUMS_BYTES } from '../runtime/layout.generated';

/** Blocks whose coefficients are computed together. */
const BLOCKS: i32 = 4;
/** The sums of a block before the first rows are added. */
const zeros = memory.data(<i32>SUMS_BYTES, 16);

// set by `beginAxpy`
let isQ4: bool = false;
let isRepacked: bool = false;
let rows: usize = 0;
let scratch: usize = 0;
let blockBytes: usize = 0;

/** Prepares `axpy` for the rows whose addresses are at `table`; `coefficients` has room for twice four blocks. */
export function beginAxpy(hasNibbles: bool, areRepacked: bool, table: usize, coefficients: usize): void {
  isQ4 = hasNibbles;
  isRepacked = areRepacked;
  rows = table;
  scratch = coefficients;
  blockBytes = hasNibbles ? Q4_0_BLOCK_BYTES : Q8_0_BLOCK_BYTES;
}

/**
 * `to = from + ` eight rows times the eight factors at `h`; 0 as `from` stands for zeros. Rows begin `offset` bytes after their
 * addresses; repacked ones have a multiple of four blocks. Coefficients are computed four blocks ahead: their dependency chain
 * takes some 70 cycles, which the sums of the current blocks hide.
 */
export function axpy(offset: usize, h: usize, numBlocks: i32, from: usize, to: usize): void {
  const last = offset + <usize>(numBlocks - 1) * blockBytes;
  const step: usize = from === 0 ? 0 : SUMS_BYTES;
  if (from === 0) from = zeros;
  let known = scratch;
  let next = scratch + COEFFICIENTS_BYTES;
  makeCoefficients(offset, last, h, known);
  for (let left = numBlocks; left > 0; left -= BLOCKS) {
    if (left > BLOCKS) makeCoefficients(offset + BLOCKS * blockBytes, last, h, next);
    const count = min<i32>(BLOCKS, left);
    if (hasUsdot()) axpyBlocks<u8>(isQ4, isRepacked, rows, offset, count, known, from, step, to);
    else if (hasMaddubs()) axpyBlocks<i16>(isQ4, isRepacked, rows, offset, count, known, from, step, to);
    else axpyBlocks<i32>(isQ4, isRepacked, rows, offset, count, known, from, step, to);
    const other = known;
    known = next;
    next = other;
    offset += BLOCKS * blockBytes;
    from += BLOCKS * step;
    to += BLOCKS * SUMS_BYTES;
  }
}

/** Computes the coefficients of four blocks from `offset` on; the last block stands in for those beyond it. */
function makeCoefficients(offset: usize, last: usize, h: usize, to: usize): void {
  const r0 = scalesOf(rows, offset, last);
  const r1 = scalesOf(rows + 8, offset, last);
  const r2 = scalesOf(rows + 16, offset, last);
  const r3 = scalesOf(rows + 24, offset, last);
  // the zero point of the unsigned codes of weights
  const excess = isQ4 ? i8x16.splat(8) : flipSigns();
  storeCoefficients(!isQ4 && !hasUsdot(), areNormal(r0, r1, r2, r3), r0, r1, r2, r3, h, excess, to);
}

/** Scales of four blocks of two rows; those of repacked rows are adjacent. */
/* @inline */ function scalesOf(rows: usize, offset: usize, last: usize): v128 {
  const first = <usize>load<u32>(rows);
  const second = <usize>load<u32>(rows, 4);
  if (isRepacked) return v128.load64_lane(second + offset, v128.load64_zero(first + offset), 1);
  const b = min<usize>(offset + blockBytes, last);
  const c = min<usize>(offset + 2 * blockBytes, last);
  const d = min<usize>(offset + 3 * blockBytes, last);
  let v = v128.load16_splat(first + offset);
  v = v128.load16_lane(first + b, v, 1);
  v = v128.load16_lane(first + c, v, 2);
  v = v128.load16_lane(first + d, v, 3);
  v = v128.load16_lane(second + offset, v, 4);
  v = v128.load16_lane(second + b, v, 5);
  v = v128.load16_lane(second + c, v, 6);
  return v128.load16_lane(second + d, v, 7);
}
