/**
 * Gather-GEMV: 8-bit activations times rows of q8_0 and q4_0 in the layout of files. A list picks the rows, so that groups of
 * four cannot be interleaved at load. Up to 32 rows take turns, four blocks each: rows are scattered in memory, and alternating
 * between many of them hides memory latency. A vector holds the sums of four blocks. Relaxed builds only.
 */
import { flipSigns, halfMask, nibbleMask, onePairs, plainFactor } from '../simd/constants.generated';
import { hasMaddubs, dotCodes, dotTwo, hasUsdot } from '../quant/int8-dot';
import { AXPY_ROWS, META_BYTES, META_MINUS_8, META_START_Q8 } from '../runtime/layout.generated';
import { gatherGemvQ4, gatherGemvQ8 } from './gather-gemv.generated';
import { lanesBytes } from './repacked-lanes';
import { fma, highNibbles, intLaneSums, laneSums, lowNibbles } from '../simd/vector';
import { Q8_0_BLOCK_BYTES, Q4_0_BLOCK_BYTES } from '../quant/dequantize';

/** Maximum number of rows that take turns. */
export const MANY_ROWS: i32 = 32;
/** The part of 2^112 that `plainFactor` leaves out: with all of it, large activations would overflow. */
const PLAIN_REST: f32 = 256;
/** Blocks per turn. */
const BLOCKS: i32 = 4;

let isQ4: bool = false;
let firstRow: usize = 0;
let endOfRows: usize = 0;

/**
 * Partial sums of `8 * numEights` rows times one token, as `sums[row][4]`, which `fourSums` reduces. Rows begin `offset`
 * bytes after the addresses at `rows`; activations are in the form that `codesFor` selects.
 */
export function gatherGemv(
  hasNibbles: bool,
  rows: usize,
  offset: usize,
  numEights: i32,
  x: usize,
  meta: usize,
  numBlocks: i32,
  sums: usize,
): void {
  isQ4 = hasNibbles;
  firstRow = rows;
  endOfRows = rows + ((<usize>(numEights * AXPY_ROWS)) << 2);
  memory.fill(sums, 0, (endOfRows - rows) << 2);
  if (hasUsdot()) addBlocks<u8>(offset, x, meta, numBlocks, sums);
  else if (hasMaddubs()) addBlocks<i16>(offset, x, meta, numBlocks, sums);
  else addBlocks<i32>(offset, x, meta, numBlocks, sums);
}

/**
 * The same results, bit for bit, for eight repacked rows (see repack-neurons.ts) and activations as in repacked-lanes.ts.
 * Rows begin `offset` bytes after the addresses at `rows`.
 */
export function gatherGemvRepacked(
  isQ4: bool,
  rows: usize,
  offset: usize,
  x: usize,
  numBlocks: i32,
  sums: usize,
): void {
  const none = f32x4.splat(0);
  for (let at = sums; at < sums + 128; at += 32) {
    v128.store(at, none);
    v128.store(at, none, 16);
  }
  const end = x + lanesBytes(isQ4, numBlocks);
  if (isQ4) {
    if (hasMaddubs()) gatherGemvQ4<i16>(rows, offset, x, end, sums);
    else gatherGemvQ4<i32>(rows, offset, x, end, sums);
  } else if (hasUsdot()) gatherGemvQ8<u8>(rows, offset, x, end, sums);
  else if (hasMaddubs()) gatherGemvQ8<i16>(rows, offset, x, end, sums);
  else gatherGemvQ8<i32>(rows, offset, x, end, sums);
}

/**
 * Adds the products of all blocks, four at a time; T as for `dotCodes`. The bits of scales are shifted to their places in an f32;
 * `d` corrects the exponent bias, so that denormal scales are exact as well, if slow. Inf and NaN read as 65536 and above.
 */
function addBlocks<T>(offset: usize, x: usize, meta: usize, numBlocks: i32, sums: usize): void {
  const minus = isQ4 ? META_MINUS_8 : META_START_Q8;
  const shift: usize = isSigned<T>() && !isQ4 ? 6 : 5;
  const blockBytes: usize = isQ4 ? Q4_0_BLOCK_BYTES : Q8_0_BLOCK_BYTES;
  const ones = onePairs();
  const low = nibbleMask();
  const flip = flipSigns();
  const mask = halfMask();
  for (let rest = numBlocks; rest > 0; rest -= BLOCKS) {
    // the first of the four stands in for missing blocks, times zero
    const b: usize = rest > 1 ? 1 : 0;
    const c: usize = rest > 2 ? 2 : 0;
    const e: usize = rest > 3 ? 3 : 0;
    const isThere = i32x4.gt_s(i32x4.splat(rest), i32x4(0, 1, 2, 3));
    const d = f32x4.mul(plainFactor(), v128.and(lanesAt(meta, b, c, e), isThere));
    const starts = lanesAt(meta + minus, b, c, e);
    let to = sums;
    for (let row = firstRow, end = endOfRows; row < end; row += 4, to += 16) {
      const p = <usize>load<u32>(row) + offset;
      const q = p + b * blockBytes;
      const r = p + c * blockBytes;
      const s = p + e * blockBytes;
      let blocks: v128;
      if (isQ4) {
        blocks = intLaneSums(
          blockQ4<T>(p, x, low, ones),
          blockQ4<T>(q, x + (b << shift), low, ones),
          blockQ4<T>(r, x + (c << shift), low, ones),
          blockQ4<T>(s, x + (e << shift), low, ones),
        );
      } else {
        blocks = intLaneSums(
          blockQ8<T>(p, x, flip, ones),
          blockQ8<T>(q, x + (b << shift), flip, ones),
          blockQ8<T>(r, x + (c << shift), flip, ones),
          blockQ8<T>(s, x + (e << shift), flip, ones),
        );
      }
      let scales = v128.load16_splat(p);
      scales = v128.load16_lane(q, scales, 1);
      scales = v128.load16_lane(r, scales, 2);
      scales = v128.load16_lane(s, scales, 3);
      const bits = v128.and(i32x4.shl(i32x4.extend_low_i16x8_s(scales), 13), mask);
      v128.store(to, fma(f32x4.convert_i32x4_s(i32x4.add(blocks, starts)), f32x4.mul(bits, d), v128.load(to)));
    }
    offset += BLOCKS * blockBytes;
    x += (<usize>BLOCKS) << shift;
    meta += BLOCKS * META_BYTES;
  }
}

/** One word from each of the metas of four blocks. */
function lanesAt(meta: usize, b: usize, c: usize, e: usize): v128 {
  let words = v128.load32_zero(meta);
  words = v128.load32_lane(meta + b * META_BYTES, words, 1);
  words = v128.load32_lane(meta + c * META_BYTES, words, 2);
  return v128.load32_lane(meta + e * META_BYTES, words, 3);
}

/** Dot products of four rows from row `row` on: the horizontal sums of their partial sums. */
export function fourSums(sums: usize, row: i32): v128 {
  sums += (<usize>row) << 4;
  const a = v128.load(sums);
  const b = v128.load(sums, 16);
  const c = v128.load(sums, 32);
  const d = v128.load(sums, 48);
  return f32x4.mul(laneSums(a, b, c, d), f32x4.splat(PLAIN_REST));
}

/* @inline */ function blockQ8<T>(p: usize, x: usize, flip: v128, ones: v128): v128 {
  const first = v128.xor(v128.load(p, 2), flip);
  const last = v128.xor(v128.load(p, 18), flip);
  const f = isSigned<T>() ? v128.load(x, 32) : flip;
  const g = isSigned<T>() ? v128.load(x, 48) : flip;
  return dotCodes<T>(v128.load(x, 16), g, last, dotCodes<T>(v128.load(x), f, first, i32x4.splat(0), ones), ones);
}

/* @inline */ function blockQ4<T>(p: usize, x: usize, low: v128, ones: v128): v128 {
  const w = v128.load(p, 2);
  return dotTwo<T>(v128.load(x), lowNibbles(w, low), v128.load(x, 16), highNibbles(w, low), i32x4.splat(0), ones);
}
