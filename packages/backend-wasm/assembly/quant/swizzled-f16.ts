/**
 * Rows of binary16 as f32 by the fewest instructions. Of every eight numbers the even ones come first, then the odd ones
 * (`swizzledIndex`): products of pairs put each half of a lane where an f32 has it, without shuffles. Numbers that are not normal
 * (zeros, denormals, Inf and NaN) are noticed afterwards and dequantized again.
 */
import { halfToFloat4 } from '../simd/vector';

/**
 * Vectors: 2^13 in the lower and in the upper halves of lanes, sign and magnitude of a binary16 where an f32 has them, what
 * the exponent lacks, twice the least normal number, and how far above it twice the largest finite one is at most.
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

/** Number `i` of a row is that at `swizzledIndex(i)` of the row as it was encoded. */
export function swizzledIndex(i: i32): i32 {
  return (i & ~7) | ((i & 3) << 1) | ((i >> 2) & 1);
}

/** Vectors to be passed to `even4`, `odd4` and `rankOf`, kept in registers by loops. */
export function swizzledMask(): v128 {
  return v128.load(table + MASK);
}
export function swizzledOffset(): v128 {
  return v128.load(table + OFFSET);
}
export function leastRank(): v128 {
  return v128.load(table + LEAST);
}

/** Decodes `count` numbers, a multiple of 8, at once. */
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

/** The even ones of eight numbers, if they are normal. */
/* @inline */ export function even4(v: v128, mask: v128, offset: v128): v128 {
  return i32x4.add(v128.and(i32x4.dot_i16x8_s(v, v128.load(table)), mask), offset);
}
/* @inline */ export function odd4(v: v128, mask: v128, offset: v128): v128 {
  return i32x4.add(v128.and(i32x4.dot_i16x8_s(v, v128.load(table + 16)), mask), offset);
}

/** At most the limit for normal numbers, more for others. The sum drops the sign. */
/* @inline */ export function rankOf(v: v128, least: v128): v128 {
  return i16x8.sub(i16x8.add(v, v), least);
}

/** Whether the largest ranks are those of normal numbers. */
export function areNormal(rank: v128): bool {
  const limit = v128.load(table + LIMIT);
  return !v128.any_true(v128.xor(i16x8.max_u(rank, limit), limit));
}

/** Decodes again every eight numbers of which one is not normal. */
export function dequantizeCarefully(from: usize, to: usize, count: i32): void {
  const least = v128.load(table + LEAST);
  for (const end = from + ((<usize>count) << 1); from < end; from += 16, to += 32) {
    const v = v128.load(from);
    if (areNormal(rankOf(v, least))) continue;
    v128.store(to, halfToFloat4(v128.and(v, i32x4.splat(0xffff))));
    v128.store(to, halfToFloat4(i32x4.shr_u(v, 16)), 16);
  }
}
