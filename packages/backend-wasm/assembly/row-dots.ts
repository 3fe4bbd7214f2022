/**
 * Dot products of 8-bit activations with rows of q8_0 and q4_0 as they lie in files: for rows that are chosen, which groups of
 * four cannot be made of beforehand. Eight rows share the activations in registers; up to 32 go by turns, a few blocks each:
 * every row begins in another place of the memory, and only many at once hide the way there. Relaxed builds only.
 */
import { flipSigns, halfMask, nibbleMask, plainFactor, plainRest } from './constants';
import { dot } from './dots8';
import { high } from './dots8-blocks';
import { META_BYTES, META_MINUS_128, META_MINUS_8 } from './quantise';
import { fma, sum4 } from './simd';

/** Most rows that go by turns. */
export const MANY_ROWS: i32 = 32;
/** Rows of a turn. */
export const EIGHT: i32 = 8;
/** Blocks of a turn. */
const STEP: i32 = 4;

/**
 * The sums of `numEights` times eight rows with one token, at `sums[row][4]`, to be finished by `rowSum`. `rows` has the
 * addresses of the rows.
 */
export function rowDots(isQ4: bool, rows: usize, numEights: i32, x: usize, meta: usize, numBlocks: i32, sums: usize): void {
  memory.fill(sums, 0, <usize>(numEights * EIGHT) << 4);
  for (let begin = 0; begin < numBlocks; begin += STEP) {
    const count = min<i32>(STEP, numBlocks - begin);
    const from = x + (<usize>begin << 5);
    const metas = meta + <usize>begin * META_BYTES;
    for (let eight: usize = 0; eight < <usize>numEights; eight++) {
      const table = rows + (eight << 5);
      const to = sums + (eight << 7);
      if (isQ4) stepQ4(table, <usize>begin * 18, from, metas, count, to);
      else stepQ8(table, <usize>begin * 34, from, metas, count, to);
    }
  }
}

/** The product of row `row`. */
export function rowSum(sums: usize, row: i32): f32 {
  return sum4(v128.load(sums + (<usize>row << 4))) * plainRest();
}

/**
 * Adds a block of q8_0. The word at `p` ends with the scale: its bits go to where an f32 has them. What the exponent
 * lacks is in `d`, so that a denormal scale is right too, though slow; Inf and NaN count as numbers from 65536 on.
 */
@inline
function addQ8(p: usize, u: v128, v: v128, start: v128, d: v128, mask: v128, flip: v128, sum: v128): v128 {
  const a = dot(v, v128.xor(v128.load(p, 20), flip), dot(u, v128.xor(v128.load(p, 4), flip), start));
  const scale = f32x4.mul(v128.and(i32x4.shr_s(v128.load32_splat(p), 3), mask), d);
  return fma(f32x4.convert_i32x4_s(a), scale, sum);
}

/** The same for q4_0. */
@inline
function addQ4(p: usize, u: v128, v: v128, start: v128, d: v128, mask: v128, low: v128, sum: v128): v128 {
  const w = v128.load(p, 4);
  const a = dot(v, high(w, low), dot(u, v128.and(w, low), start));
  const scale = f32x4.mul(v128.and(i32x4.shr_s(v128.load32_splat(p), 3), mask), d);
  return fma(f32x4.convert_i32x4_s(a), scale, sum);
}

function stepQ8(rows: usize, offset: usize, x: usize, meta: usize, count: i32, sums: usize): void {
  const mask = halfMask();
  const factor = plainFactor();
  const flip = flipSigns();
  offset -= 2; // to the word that ends with the scale
  let p0 = load<u32>(rows) + offset;
  let p1 = load<u32>(rows, 4) + offset;
  let p2 = load<u32>(rows, 8) + offset;
  let p3 = load<u32>(rows, 12) + offset;
  let p4 = load<u32>(rows, 16) + offset;
  let p5 = load<u32>(rows, 20) + offset;
  let p6 = load<u32>(rows, 24) + offset;
  let p7 = load<u32>(rows, 28) + offset;
  let s0 = v128.load(sums);
  let s1 = v128.load(sums, 16);
  let s2 = v128.load(sums, 32);
  let s3 = v128.load(sums, 48);
  let s4 = v128.load(sums, 64);
  let s5 = v128.load(sums, 80);
  let s6 = v128.load(sums, 96);
  let s7 = v128.load(sums, 112);
  for (; count > 0; count--, x += 32, meta += META_BYTES) {
    const u = v128.load(x);
    const v = v128.load(x, 16);
    const d = f32x4.mul(factor, v128.load32_splat(meta));
    // in one lane only: the four are added up in the end
    const start = v128.load32_zero(meta, META_MINUS_128);
    s0 = addQ8(p0, u, v, start, d, mask, flip, s0);
    s1 = addQ8(p1, u, v, start, d, mask, flip, s1);
    s2 = addQ8(p2, u, v, start, d, mask, flip, s2);
    s3 = addQ8(p3, u, v, start, d, mask, flip, s3);
    s4 = addQ8(p4, u, v, start, d, mask, flip, s4);
    s5 = addQ8(p5, u, v, start, d, mask, flip, s5);
    s6 = addQ8(p6, u, v, start, d, mask, flip, s6);
    s7 = addQ8(p7, u, v, start, d, mask, flip, s7);
    p0 += 34;
    p1 += 34;
    p2 += 34;
    p3 += 34;
    p4 += 34;
    p5 += 34;
    p6 += 34;
    p7 += 34;
  }
  v128.store(sums, s0);
  v128.store(sums, s1, 16);
  v128.store(sums, s2, 32);
  v128.store(sums, s3, 48);
  v128.store(sums, s4, 64);
  v128.store(sums, s5, 80);
  v128.store(sums, s6, 96);
  v128.store(sums, s7, 112);
}

function stepQ4(rows: usize, offset: usize, x: usize, meta: usize, count: i32, sums: usize): void {
  const mask = halfMask();
  const factor = plainFactor();
  const low = nibbleMask();
  offset -= 2; // to the word that ends with the scale
  let p0 = load<u32>(rows) + offset;
  let p1 = load<u32>(rows, 4) + offset;
  let p2 = load<u32>(rows, 8) + offset;
  let p3 = load<u32>(rows, 12) + offset;
  let p4 = load<u32>(rows, 16) + offset;
  let p5 = load<u32>(rows, 20) + offset;
  let p6 = load<u32>(rows, 24) + offset;
  let p7 = load<u32>(rows, 28) + offset;
  let s0 = v128.load(sums);
  let s1 = v128.load(sums, 16);
  let s2 = v128.load(sums, 32);
  let s3 = v128.load(sums, 48);
  let s4 = v128.load(sums, 64);
  let s5 = v128.load(sums, 80);
  let s6 = v128.load(sums, 96);
  let s7 = v128.load(sums, 112);
  for (; count > 0; count--, x += 32, meta += META_BYTES) {
    const u = v128.load(x);
    const v = v128.load(x, 16);
    const d = f32x4.mul(factor, v128.load32_splat(meta));
    const start = v128.load32_zero(meta, META_MINUS_8);
    s0 = addQ4(p0, u, v, start, d, mask, low, s0);
    s1 = addQ4(p1, u, v, start, d, mask, low, s1);
    s2 = addQ4(p2, u, v, start, d, mask, low, s2);
    s3 = addQ4(p3, u, v, start, d, mask, low, s3);
    s4 = addQ4(p4, u, v, start, d, mask, low, s4);
    s5 = addQ4(p5, u, v, start, d, mask, low, s5);
    s6 = addQ4(p6, u, v, start, d, mask, low, s6);
    s7 = addQ4(p7, u, v, start, d, mask, low, s7);
    p0 += 18;
    p1 += 18;
    p2 += 18;
    p3 += 18;
    p4 += 18;
    p5 += 18;
    p6 += 18;
    p7 += 18;
  }
  v128.store(sums, s0);
  v128.store(sums, s1, 16);
  v128.store(sums, s2, 32);
  v128.store(sums, s3, 48);
  v128.store(sums, s4, 64);
  v128.store(sums, s5, 80);
  v128.store(sums, s6, 96);
  v128.store(sums, s7, 112);
}
