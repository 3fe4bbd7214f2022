/**
 * Loops that measure the roofline: memory bandwidth, f32 multiply-adds, integer dot products. The arithmetic loops keep ten
 * independent accumulators and load one operand for every two operations, so that neither latency nor memory limits them.
 */
import { addPairs, dot, hasMaddubs, pairs } from '../quant/int8-dot';
import { onePairs } from '../simd/constants.generated';
import { fma, sum4, sumI4 } from '../simd/vector';
import { PROBE_STEPS } from '../runtime/layout.generated';

/* @inline */ function addLine(p: usize, sum: v128): v128 {
  const half = i32x4.add(i32x4.add(sum, v128.load(p)), v128.load(p, 16));
  return i32x4.add(i32x4.add(half, v128.load(p, 32)), v128.load(p, 48));
}

/** Reads `sizeBytes` (a multiple of 256) as four streams, as a single one leaves bandwidth unused, and returns the sum. */
export function readMemory(begin: usize, sizeBytes: usize): i32 {
  const quarter = sizeBytes >> 2;
  let a = i32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  for (let p = begin, end = begin + quarter; p < end; p += 64) {
    a = addLine(p, a);
    b = addLine(p + quarter, b);
    c = addLine(p + 2 * quarter, c);
    d = addLine(p + 3 * quarter, d);
  }
  return sumI4(i32x4.add(i32x4.add(a, b), i32x4.add(c, d)));
}

/** `sum + a . b` of floats, of 8-bit integers (by maddubs if T is i16), or of 16-bit ones in builds without relaxed SIMD. */
/* @inline */ function step<T>(a: v128, b: v128, sum: v128, ones: v128): v128 {
  if (isFloat<T>()) return fma(a, b, sum);
  if (sizeof<T>() === 2) return addPairs(sum, pairs(a, b), ones);
  return ASC_FEATURE_RELAXED_SIMD ? dot(a, b, sum) : i32x4.add(i32x4.dot_i16x8_s(a, b), sum);
}

/* @inline */ function plus<T>(a: v128, b: v128): v128 {
  return isFloat<T>() ? f32x4.add(a, b) : i32x4.add(a, b);
}

/** Runs `passes` passes of `10 * PROBE_STEPS` operations; their operands take 8 bytes per operation. */
function arithmetic<T>(data: usize, passes: i32): v128 {
  const ones = onePairs();
  const x = v128.load(data);
  const z = v128.load(data, 16);
  let s0 = i32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let s4 = s0;
  let s5 = s0;
  let s6 = s0;
  let s7 = s0;
  let s8 = s0;
  let s9 = s0;
  for (let pass = 0; pass < passes; pass++) {
    for (let p = data + 32, end = p + PROBE_STEPS * 80; p < end; p += 80) {
      let y = v128.load(p);
      s0 = step<T>(y, x, s0, ones);
      s1 = step<T>(y, z, s1, ones);
      y = v128.load(p, 16);
      s2 = step<T>(y, x, s2, ones);
      s3 = step<T>(y, z, s3, ones);
      y = v128.load(p, 32);
      s4 = step<T>(y, x, s4, ones);
      s5 = step<T>(y, z, s5, ones);
      y = v128.load(p, 48);
      s6 = step<T>(y, x, s6, ones);
      s7 = step<T>(y, z, s7, ones);
      y = v128.load(p, 64);
      s8 = step<T>(y, x, s8, ones);
      s9 = step<T>(y, z, s9, ones);
    }
  }
  s0 = plus<T>(plus<T>(plus<T>(s0, s1), plus<T>(s2, s3)), plus<T>(plus<T>(s4, s5), plus<T>(s6, s7)));
  return plus<T>(s0, plus<T>(s8, s9));
}

export function multiplyAdds(data: usize, passes: i32): i32 {
  return <i32>sum4(arithmetic<f32>(data, passes));
}

/** Integer dot products with the instructions of this build and machine. */
export function integerDots(data: usize, passes: i32): i32 {
  return i32x4.extract_lane(hasMaddubs() ? arithmetic<i16>(data, passes) : arithmetic<i32>(data, passes), 0);
}
