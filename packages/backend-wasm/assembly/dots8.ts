/** Products of expanded groups with 8-bit activations: integer sums per block, floats across blocks. */
import { EXPANDED_BYTES } from './expand';
import { META_BYTES, META_SUM } from './quantise';
import { fma } from './simd';

/**
 * Whether the relaxed dot product of this machine is exact for unsigned codes above 127. It is not where it is made of
 * 16-bit additions that saturate.
 */
export function isExactForU8(): bool {
  if (!ASC_FEATURE_RELAXED_SIMD) return false;
  const zero = i32x4.splat(0);
  const high = dot(i8x16.splat(127), i8x16.splat(-1), zero);
  const low = dot(i8x16.splat(-127), i8x16.splat(-1), zero);
  return i32x4.extract_lane(high, 0) == 4 * 127 * 255 && i32x4.extract_lane(low, 3) == -4 * 127 * 255;
}

/** `sum + x . codes` of four columns of four rows; x signed, codes unsigned. Relaxed builds only. */
export function dot(x: v128, codes: v128, sum: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_dot_i8x16_i7x16_add_s(x, codes, sum);
  return sum;
}

/** One group and one token with 16-bit dot products: exact everywhere. Returns `sums` with the blocks added. */
export function tile1x1Wide(
  panel: usize,
  numBlocks: i32,
  wide: usize,
  meta: usize,
  initial: usize,
  halves: bool,
  sums: v128,
): v128 {
  for (let block = 0; block < numBlocks; block++, panel += EXPANDED_BYTES, wide += 64, meta += META_BYTES) {
    const d = v128.load32_splat(meta);
    if (halves) {
      const first = fourSums(panel, wide, 4);
      const second = fourSums(panel + 64, wide + 32, 4);
      const a = i32x4.add(first, v128.load32_splat(meta + initial));
      const b = i32x4.add(second, v128.load32_splat(meta + initial, 4));
      sums = fma(f32x4.convert_i32x4_s(a), f32x4.mul(v128.load(panel, 128), d), sums);
      sums = fma(f32x4.convert_i32x4_s(b), f32x4.mul(v128.load(panel, 144), d), sums);
    } else {
      const a = i32x4.add(fourSums(panel, wide, 8), v128.load32_splat(meta + initial));
      sums = fma(f32x4.convert_i32x4_s(a), f32x4.mul(v128.load(panel, 128), d), sums);
      sums = fma(v128.load(panel, 144), v128.load32_splat(meta, META_SUM), sums);
    }
  }
  return sums;
}

/** Sums over `count` vectors of codes, four columns each. */
function fourSums(codes: usize, wide: usize, count: i32): v128 {
  let low = i32x4.splat(0);
  let high = low;
  for (let j = 0; j < count; j++, codes += 16, wide += 8) {
    const x = v128.load64_splat(wide);
    const c = v128.load(codes);
    low = i32x4.add(low, i32x4.dot_i16x8_s(i16x8.extend_low_i8x16_u(c), x));
    high = i32x4.add(high, i32x4.dot_i16x8_s(i16x8.extend_high_i8x16_u(c), x));
  }
  const even = i8x16.shuffle(low, high, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  const odd = i8x16.shuffle(low, high, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  return i32x4.add(even, odd);
}
