/**
 * axpy over eight rows of q8_0 or q4_0: adds the rows, each times a number h, to sums of all columns. Four rows are interleaved
 * byte by byte on the way into dot products of four. Relaxed builds only.
 */
import { hasMaddubs, hasUsdot } from '../gemm/int8-dot';
import { flipSigns, leastNormal, magnitudeMask } from '../simd/constants.generated';
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
  const hasSigns = !isQ4 && !hasUsdot();
  // what codes of weights are too large by
  const excess = isQ4 ? i8x16.splat(8) : flipSigns();
  if (isRepacked) {
    const r0 = repackedScales(rows, offset);
    const r1 = repackedScales(rows + 8, offset);
    const r2 = repackedScales(rows + 16, offset);
    const r3 = repackedScales(rows + 24, offset);
    storeCoefficients(hasSigns, areRepackedNormal(r0, r1, r2, r3), r0, r1, r2, r3, h, excess, to);
    return;
  }
  const b = min<usize>(offset + blockBytes, last);
  const c = min<usize>(offset + 2 * blockBytes, last);
  const d = min<usize>(offset + 3 * blockBytes, last);
  const r0 = plainScales(rows, offset, b, c, d);
  const r1 = plainScales(rows + 8, offset, b, c, d);
  const r2 = plainScales(rows + 16, offset, b, c, d);
  const r3 = plainScales(rows + 24, offset, b, c, d);
  storeCoefficients(hasSigns, areNormal(r0, r1, r2, r3), r0, r1, r2, r3, h, excess, to);
}

/** Scales of four blocks of two repacked rows: they lie side by side. */
/* @inline */ function repackedScales(rows: usize, offset: usize): v128 {
  const first = <usize>load<u32>(rows) + offset;
  const second = <usize>load<u32>(rows, 4) + offset;
  return v128.load64_lane(second, v128.load64_zero(first), 1);
}

/** The same of rows as they lie in files, with the offsets of the blocks. */
/* @inline */ function plainScales(rows: usize, a: usize, b: usize, c: usize, d: usize): v128 {
  const first = <usize>load<u32>(rows);
  const second = <usize>load<u32>(rows, 4);
  let v = v128.load16_splat(first + a);
  v = v128.load16_lane(first + b, v, 1);
  v = v128.load16_lane(first + c, v, 2);
  v = v128.load16_lane(first + d, v, 3);
  v = v128.load16_lane(second + a, v, 4);
  v = v128.load16_lane(second + b, v, 5);
  v = v128.load16_lane(second + c, v, 6);
  return v128.load16_lane(second + d, v, 7);
}

/** Whether all scales are normal numbers, where none is large. */
/* @inline */ function areRepackedNormal(r0: v128, r1: v128, r2: v128, r3: v128): bool {
  const magnitude = magnitudeMask();
  const smallest = i16x8.min_u(
    i16x8.min_u(v128.and(r0, magnitude), v128.and(r1, magnitude)),
    i16x8.min_u(v128.and(r2, magnitude), v128.and(r3, magnitude)),
  );
  return !v128.any_true(i16x8.lt_s(smallest, leastNormal()));
}
