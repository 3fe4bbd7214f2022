/** Sums of products of bytes, as builds and machines have them; decision 0016. */
import { EXPANDED_BYTES } from './int8-unpack';
import { DOT_FORM } from '../runtime/layout';
import { META_BYTES, META_SUM } from '../quant/quantize-activations';
import { fma } from '../simd/vector';

// forms of relaxed dot products; src/layout.ts has those that the host may ask for
const UNSIGNED: i32 = 1;
const WHOLE: i32 = 2;
const PAIRS: i32 = 3;

let form: i32 = 0;

/**
 * How products of bytes are added up here, unless the host asked for a form that is exact on every machine:
 *   UNSIGNED  by one instruction that also takes unsigned codes above 127
 *   PAIRS     by one that gives sums of two products, which saturate at 16 bits, and others for the rest (SSE, AVX2)
 *   WHOLE     in any other way
 */
function dotForm(): i32 {
  if (form === 0) form = load<i32>(DOT_FORM);
  if (form === 0) {
    const zero = i32x4.splat(0);
    const high = i32x4.extract_lane(dot(i8x16.splat(127), i8x16.splat(-1), zero), 0);
    const low = i32x4.extract_lane(dot(i8x16.splat(-127), i8x16.splat(-1), zero), 3);
    if (high === 4 * 127 * 255 && low === -4 * 127 * 255) form = UNSIGNED;
    else form = high === 2 * 32767 && low === -2 * 32768 ? PAIRS : WHOLE;
  }
  return form;
}

/** Whether products with unsigned codes above 127 are exact. Where not, codes are flipped; see `dotFlipped`. */
export function takesUnsigned(): bool {
  return ASC_FEATURE_RELAXED_SIMD && dotForm() === UNSIGNED;
}

/** Whether products are best added up by pairs. */
export function addsPairs(): bool {
  return ASC_FEATURE_RELAXED_SIMD && dotForm() === PAIRS;
}

/** `sum + x . codes` of four columns of four rows; x signed, codes of seven bits, of eight where machines take them. Relaxed builds only. */
export function dot(x: v128, codes: v128, sum: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_dot_i8x16_i7x16_add_s(x, codes, sum);
  return sum;
}

/** Sums of two products each; x signed, codes of seven bits: at most `2 * 128 * 127`. Relaxed builds only. */
export function pairs(x: v128, codes: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i16x8.relaxed_dot_i8x16_i7x16_s(x, codes);
  return x;
}

/** `sum + ` sums of pairs, two by two. */
export function addPairs(sum: v128, products: v128, ones: v128): v128 {
  return i32x4.add(sum, i32x4.dot_i16x8_s(products, ones));
}

/**
 * `sum + |x| . (codes ^ flips)` of four columns of four rows, by pairs where T is i16. Flips are 128 where x is positive and 127 where
 * it is negative: they make signed numbers of unsigned codes, times the sign of x, less one where it is negative, as `-y = ~y + 1`. So sums begin
 * with the magnitudes of negative x. Seven bits times eight are exact on every machine: `2 * 127 * 128 < 2^15`. Relaxed builds only.
 */
export function dotFlipped<T>(magnitudes: v128, flips: v128, codes: v128, sum: v128, ones: v128): v128 {
  const turned = v128.xor(codes, flips);
  if (sizeof<T>() === 2) return addPairs(sum, pairs(turned, magnitudes), ones);
  return dot(turned, magnitudes, sum);
}

/**
 * The same where the form of the machine is known when kernels are compiled, by T: u8 for UNSIGNED, where x is signed and nothing is flipped,
 * i16 for PAIRS, i32 for WHOLE.
 */
export function dotBytes<T>(x: v128, flips: v128, codes: v128, sum: v128, ones: v128): v128 {
  if (isSigned<T>()) return dotFlipped<T>(x, flips, codes, sum, ones);
  return dot(x, codes, sum);
}

/** `sum + u . a + v . b`, by pairs where T is i16; a and b of six bits at most: `4 * 63 * 127 < 2^15`. */
export function dotTwo<T>(u: v128, a: v128, v: v128, b: v128, sum: v128, ones: v128): v128 {
  if (sizeof<T>() === 2) return addPairs(sum, i16x8.add(pairs(u, a), pairs(v, b)), ones);
  return dot(v, b, dot(u, a, sum));
}

/** One expanded group and one token with 16-bit dot products, in builds without relaxed SIMD. Returns `sums` with the blocks added. */
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
