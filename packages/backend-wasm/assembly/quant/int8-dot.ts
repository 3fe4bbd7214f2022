/** 8-bit dot products, with the instructions that the build and the machine offer; see decision 0016. */
import * as layout from '../runtime/layout.generated';
import { highNibbles, lowNibbles } from '../simd/vector';

let kind: i32 = layout.INT8_DOT_AUTO;

/**
 * How this machine sums 8-bit products, unless the host overrides it with a kind that is exact on every machine:
 *   usdot    one instruction, which also takes unsigned codes above 127
 *   maddubs  one instruction sums pairs of products, saturating at 16 bits; others do the rest (SSE, AVX2)
 *   generic  anything else
 */
function int8Dot(): i32 {
  if (kind === layout.INT8_DOT_AUTO) kind = load<i32>(layout.INT8_DOT);
  if (kind === layout.INT8_DOT_AUTO) {
    const zero = i32x4.splat(0);
    const high = i32x4.extract_lane(dot(i8x16.splat(127), i8x16.splat(-1), zero), 0);
    const low = i32x4.extract_lane(dot(i8x16.splat(-127), i8x16.splat(-1), zero), 3);
    if (high === 4 * 127 * 255 && low === -4 * 127 * 255) kind = layout.INT8_DOT_USDOT;
    else kind = high === 2 * 32767 && low === -2 * 32768 ? layout.INT8_DOT_MADDUBS : layout.INT8_DOT_GENERIC;
  }
  return kind;
}

/** Whether products with unsigned codes above 127 are exact. If not, q8_0 takes activations as signs and magnitudes. */
export function hasUsdot(): bool {
  return ASC_FEATURE_RELAXED_SIMD && int8Dot() === layout.INT8_DOT_USDOT;
}

/** Whether summing products in 16-bit pairs is fastest. */
export function hasMaddubs(): bool {
  return ASC_FEATURE_RELAXED_SIMD && int8Dot() === layout.INT8_DOT_MADDUBS;
}

/** `sum + x . codes` over four columns of four rows; x is signed, codes have 7 bits, 8 with usdot. Relaxed builds only. */
export function dot(x: v128, codes: v128, sum: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_dot_i8x16_i7x16_add_s(x, codes, sum);
  return sum;
}

/** 16-bit sums of pairs of products; x is signed, codes have seven bits: at most `2 * 128 * 127`. Relaxed builds only. */
export function pairs(x: v128, codes: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i16x8.relaxed_dot_i8x16_i7x16_s(x, codes);
  return x;
}

/** Adds neighboring 16-bit sums of pairs to the 32-bit lanes of `sum`. */
export function addPairs(sum: v128, products: v128, ones: v128): v128 {
  return i32x4.add(sum, i32x4.dot_i16x8_s(products, ones));
}

/**
 * `sum + |x| . (codes ^ signs)` over four columns of four rows, in 16-bit pairs where T is i16. Signs are 128 where x is positive
 * and 127 where it is negative: the XOR makes unsigned codes signed and applies the sign of x, but is one too small where x is
 * negative, because `-y = ~y + 1`. Accumulators therefore start with the magnitudes of negative x. Seven bits times eight bits
 * are exact on every machine: `2 * 127 * 128 < 2^15`. Relaxed builds only.
 */
export function dotSignMagnitude<T>(magnitudes: v128, signs: v128, codes: v128, sum: v128, ones: v128): v128 {
  const signed = v128.xor(codes, signs);
  if (sizeof<T>() === 2) return addPairs(sum, pairs(signed, magnitudes), ones);
  return dot(signed, magnitudes, sum);
}

/** Dot product of the kind that T selects: u8 for usdot (x is signed, `signs` unused), i16 for maddubs, i32 for generic. */
export function dotCodes<T>(x: v128, signs: v128, codes: v128, sum: v128, ones: v128): v128 {
  if (isSigned<T>()) return dotSignMagnitude<T>(x, signs, codes, sum, ones);
  return dot(x, codes, sum);
}

/** `sum + u . a + v . b`, in 16-bit pairs where T is i16; a and b have at most six bits: `4 * 63 * 127 < 2^15`. */
export function dotTwo<T>(u: v128, a: v128, v: v128, b: v128, sum: v128, ones: v128): v128 {
  if (sizeof<T>() === 2) return addPairs(sum, i16x8.add(pairs(u, a), pairs(v, b)), ones);
  return dot(v, b, dot(u, a, sum));
}

/** Adds dot products with two vectors of nibbles: columns t and u times the low ones, v and w times the high ones. */
export function dotNibbles<T>(
  at: v128,
  next: v128,
  t: v128,
  u: v128,
  v: v128,
  w: v128,
  low: v128,
  sum: v128,
  ones: v128,
): v128 {
  if (sizeof<T>() === 2) {
    const first = i16x8.add(pairs(t, lowNibbles(at, low)), pairs(v, highNibbles(at, low)));
    const second = i16x8.add(pairs(u, lowNibbles(next, low)), pairs(w, highNibbles(next, low)));
    return addPairs(sum, i16x8.add(first, second), ones);
  }
  sum = dot(v, highNibbles(at, low), dot(t, lowNibbles(at, low), sum));
  return dot(w, highNibbles(next, low), dot(u, lowNibbles(next, low), sum));
}
