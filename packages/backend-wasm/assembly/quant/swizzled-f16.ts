/**
 * Dequantizes rows of binary16 with as few instructions as possible. Of every eight numbers the even ones come first, then the
 * odd ones (`swizzledIndex`): a 16-bit dot product moves either half of a lane to its place in an f32, without shuffles. Numbers
 * that are not normal (zeros, denormals, Inf and NaN) are detected afterwards and dequantized again.
 */
import { halfToFloat4 } from '../simd/vector';

/**
 * Vectors: 2^13 in the lower halves of lanes, 2^13 in the upper halves, the mask of a binary16's sign and magnitude in an f32,
 * the difference in exponent bias, twice the smallest normal number, and the largest rank of a normal number.
 */
const table = memory.data<u32>(
  [
    0x00002000, 0x00002000, 0x00002000, 0x00002000, 0x20000000, 0x20000000, 0x20000000, 0x20000000, 0x8fffe000,
    0x8fffe000, 0x8fffe000, 0x8fffe000, 0x38000000, 0x38000000, 0x38000000, 0x38000000, 0x08000800, 0x08000800,
    0x08000800, 0x08000800, 0xefffefff, 0xefffefff, 0xefffefff, 0xefffefff,
  ],
  16,
);
const MASK: usize = 32;
const OFFSET: usize = 48;
const LEAST: usize = 64;
const LIMIT: usize = 80;

/** Element `i` of a dequantized row is element `swizzledIndex(i)` of the stored row. */
export function swizzledIndex(i: i32): i32 {
  return (i & ~7) | ((i & 3) << 1) | ((i >> 2) & 1);
}

/** Arguments of `even4`, `odd4` and `rankOf`, which loops keep in registers. */
export function swizzledMask(): v128 {
  return v128.load(table + MASK);
}
export function swizzledOffset(): v128 {
  return v128.load(table + OFFSET);
}
export function leastRank(): v128 {
  return v128.load(table + LEAST);
}

/** Dequantizes `count` numbers, a multiple of 8. */
export function dequantizeSwizzled(from: usize, to: usize, count: i32): void {
  const mask = v128.load(table + MASK);
  const offset = v128.load(table + OFFSET);
  const least = v128.load(table + LEAST);
  let rank = i32x4.splat(0);
  const end = from + ((<usize>count) << 1);
  for (let at = from, out = to; at < end; at += 16, out += 32) {
    const h = v128.load(at);
    v128.store(out, even4(h, mask, offset));
    v128.store(out, odd4(h, mask, offset), 16);
    rank = i16x8.max_u(rank, rankOf(h, least));
  }
  if (!areNormal(rank)) dequantizeCarefully(from, to, count);
}

/** The even ones of eight numbers, valid if they are normal. */
/* @inline */ export function even4(v: v128, mask: v128, offset: v128): v128 {
  return i32x4.add(v128.and(i32x4.dot_i16x8_s(v, v128.load(table)), mask), offset);
}
/* @inline */ export function odd4(v: v128, mask: v128, offset: v128): v128 {
  return i32x4.add(v128.and(i32x4.dot_i16x8_s(v, v128.load(table + 16)), mask), offset);
}

/** Ranks: at most the limit for normal numbers, above it for others. Doubling drops the sign. */
/* @inline */ export function rankOf(v: v128, least: v128): v128 {
  return i16x8.sub(i16x8.add(v, v), least);
}

/** Whether the largest ranks of all vectors are those of normal numbers. */
export function areNormal(rank: v128): bool {
  const limit = v128.load(table + LIMIT);
  return !v128.any_true(v128.xor(i16x8.max_u(rank, limit), limit));
}

/** Dequantizes again every vector of eight numbers with one that is not normal. */
export function dequantizeCarefully(from: usize, to: usize, count: i32): void {
  const least = v128.load(table + LEAST);
  for (const end = from + ((<usize>count) << 1); from < end; from += 16, to += 32) {
    const v = v128.load(from);
    if (areNormal(rankOf(v, least))) continue;
    v128.store(to, halfToFloat4(v128.and(v, i32x4.splat(0xffff))));
    v128.store(to, halfToFloat4(i32x4.shr_u(v, 16)), 16);
  }
}
