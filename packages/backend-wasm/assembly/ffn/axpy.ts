/**
 * axpy over eight rows of q8_0 or q4_0: adds the rows, each times a number h, to sums of all columns. Four rows are interleaved
 * byte by byte on the way into dot products of four. Relaxed builds only.
 */
import { hasMaddubs, hasUsdot } from '../gemm/int8-dot';
import { flipSigns } from '../simd/constants.generated';
import { COEFFICIENTS_BYTES, areNormal } from './axpy-coefficients';
import { storeCoefficients } from './axpy-coefficients.generated';
import { axpyBlocks } from './axpy.generated';

/** Blocks whose coefficients are made at once. */
const FOUR: i32 = 4;
/** Bytes of 32 sums, and that many of nothing. */
const BLOCK_BYTES: usize = 128;
const nothing = memory.data(128, 16);

// what `beginAxpy` says
let isQ4: bool = false;
let isRepacked: bool = false;
let rows: usize = 0;
let scratch: usize = 0;
let blockBytes: usize = 0;

/** From here on rows are those whose addresses are at `table`; `coefficients` has room for those of two times four blocks. */
export function beginAxpy(hasNibbles: bool, areRepacked: bool, table: usize, coefficients: usize): void {
  isQ4 = hasNibbles;
  isRepacked = areRepacked;
  rows = table;
  scratch = coefficients;
  blockBytes = hasNibbles ? 18 : 34;
}

/**
 * `to = from + ` eight rows times the eight numbers at `h`, from nothing where `from` is 0. Rows begin `offset` bytes behind their
 * addresses; repacked ones have whole fours of blocks. Coefficients are made four blocks ahead: one needs the other's result for
 * some 70 cycles, which adding up fills.
 */
export function axpy(offset: usize, h: usize, numBlocks: i32, from: usize, to: usize): void {
  const last = offset + <usize>(numBlocks - 1) * blockBytes;
  const step: usize = from === 0 ? 0 : BLOCK_BYTES;
  if (from === 0) from = nothing;
  let known = scratch;
  let next = scratch + COEFFICIENTS_BYTES;
  makeCoefficients(offset, last, h, known);
  for (let left = numBlocks; left > 0; left -= FOUR) {
    if (left > FOUR) makeCoefficients(offset + FOUR * blockBytes, last, h, next);
    const count = min<i32>(FOUR, left);
    if (hasUsdot()) axpyBlocks<u8>(isQ4, isRepacked, rows, offset, count, known, from, step, to);
    else if (hasMaddubs()) axpyBlocks<i16>(isQ4, isRepacked, rows, offset, count, known, from, step, to);
    else axpyBlocks<i32>(isQ4, isRepacked, rows, offset, count, known, from, step, to);
    const other = known;
    known = next;
    next = other;
    offset += FOUR * blockBytes;
    from += FOUR * step;
    to += FOUR * BLOCK_BYTES;
  }
}

/** Coefficients of four blocks from `offset` on; for blocks behind the last one it stands in. */
function makeCoefficients(offset: usize, last: usize, h: usize, to: usize): void {
  const r0 = scalesOf(rows, offset, last);
  const r1 = scalesOf(rows + 8, offset, last);
  const r2 = scalesOf(rows + 16, offset, last);
  const r3 = scalesOf(rows + 24, offset, last);
  // what codes of weights are too large by
  const excess = isQ4 ? i8x16.splat(8) : flipSigns();
  storeCoefficients(!isQ4 && !hasUsdot(), areNormal(r0, r1, r2, r3), r0, r1, r2, r3, h, excess, to);
}

/** Scales of four blocks of two rows; those of repacked rows lie side by side. */
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
