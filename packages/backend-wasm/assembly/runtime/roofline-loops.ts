/**
 * Loops that find out what a machine can do: reading memory, multiply-adds of floats and of bytes. The arithmetic loops
 * keep ten independent sums and take one operand of every two operations from the first level cache, so that neither
 * latency nor memory limits them.
 */
import { onePairs } from '../simd/constants';
import { addPairs, hasMaddubs, pairs } from '../gemm/int8-dot';
import { fma } from '../simd/vector';

/** Operations of one pass of the arithmetic loops, in steps of ten vectors. */
const STEPS: usize = 8;
const STEP_BYTES: usize = 80;

/**
 * Reads `sizeBytes` (a multiple of 256) as four streams and returns their sum, so that nothing can be left out. One stream
 * alone leaves some of the memory's speed unused.
 */
export function readMemory(begin: usize, sizeBytes: usize): i32 {
  const quarter = sizeBytes >> 2;
  let s0 = i32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  for (let p0 = begin, end = begin + quarter; p0 < end; p0 += 64) {
    const p1 = p0 + quarter;
    const p2 = p1 + quarter;
    const p3 = p2 + quarter;
    s0 = i32x4.add(s0, v128.load(p0, 0));
    s0 = i32x4.add(s0, v128.load(p0, 16));
    s0 = i32x4.add(s0, v128.load(p0, 32));
    s0 = i32x4.add(s0, v128.load(p0, 48));
    s1 = i32x4.add(s1, v128.load(p1, 0));
    s1 = i32x4.add(s1, v128.load(p1, 16));
    s1 = i32x4.add(s1, v128.load(p1, 32));
    s1 = i32x4.add(s1, v128.load(p1, 48));
    s2 = i32x4.add(s2, v128.load(p2, 0));
    s2 = i32x4.add(s2, v128.load(p2, 16));
    s2 = i32x4.add(s2, v128.load(p2, 32));
    s2 = i32x4.add(s2, v128.load(p2, 48));
    s3 = i32x4.add(s3, v128.load(p3, 0));
    s3 = i32x4.add(s3, v128.load(p3, 16));
    s3 = i32x4.add(s3, v128.load(p3, 32));
    s3 = i32x4.add(s3, v128.load(p3, 48));
  }
  const sum = i32x4.add(i32x4.add(s0, s1), i32x4.add(s2, s3));
  return (
    i32x4.extract_lane(sum, 0) + i32x4.extract_lane(sum, 1) + i32x4.extract_lane(sum, 2) + i32x4.extract_lane(sum, 3)
  );
}

function sumF32(v: v128): i32 {
  return <i32>(
    (f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3))
  );
}

/** Multiply-adds as this build has them, 4 lanes: 640 operations per pass. */
export function multiplyAdds(data: usize, passes: i32): i32 {
  const x0 = v128.load(data);
  const x1 = v128.load(data, 16);
  const begin = data + 32;
  const end = begin + STEPS * STEP_BYTES;
  let s0 = f32x4.splat(0);
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
    for (let p = begin; p < end; p += STEP_BYTES) {
      const y0 = v128.load(p, 0);
      s0 = fma(y0, x0, s0);
      s1 = fma(y0, x1, s1);
      const y1 = v128.load(p, 16);
      s2 = fma(y1, x0, s2);
      s3 = fma(y1, x1, s3);
      const y2 = v128.load(p, 32);
      s4 = fma(y2, x0, s4);
      s5 = fma(y2, x1, s5);
      const y3 = v128.load(p, 48);
      s6 = fma(y3, x0, s6);
      s7 = fma(y3, x1, s7);
      const y4 = v128.load(p, 64);
      s8 = fma(y4, x0, s8);
      s9 = fma(y4, x1, s9);
    }
  }
  s0 = f32x4.add(f32x4.add(s0, s1), f32x4.add(s2, s3));
  s4 = f32x4.add(f32x4.add(s4, s5), f32x4.add(s6, s7));
  return sumF32(f32x4.add(f32x4.add(s0, s4), f32x4.add(s8, s9)));
}

function dot<T>(a: v128, b: v128, c: v128, ones: v128): v128 {
  if (sizeof<T>() === 2) return addPairs(c, pairs(a, b), ones);
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_dot_i8x16_i7x16_add_s(a, b, c);
  return i32x4.add(i32x4.dot_i16x8_s(a, b), c);
}

/**
 * Integer dot products as this build and this machine have them: of 16 pairs of bytes, 2560 operations per pass, or else of 8 pairs of 16
 * bits, 1280 per pass.
 */
export function integerDots(data: usize, passes: i32): i32 {
  return hasMaddubs() ? integerDotsBy<i16>(data, passes) : integerDotsBy<i32>(data, passes);
}

/** By pairs of products where T is i16. */
function integerDotsBy<T>(data: usize, passes: i32): i32 {
  const ones = onePairs();
  const x0 = v128.load(data);
  const x1 = v128.load(data, 16);
  const begin = data + 32;
  const end = begin + STEPS * STEP_BYTES;
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
    for (let p = begin; p < end; p += STEP_BYTES) {
      const y0 = v128.load(p, 0);
      s0 = dot<T>(y0, x0, s0, ones);
      s1 = dot<T>(y0, x1, s1, ones);
      const y1 = v128.load(p, 16);
      s2 = dot<T>(y1, x0, s2, ones);
      s3 = dot<T>(y1, x1, s3, ones);
      const y2 = v128.load(p, 32);
      s4 = dot<T>(y2, x0, s4, ones);
      s5 = dot<T>(y2, x1, s5, ones);
      const y3 = v128.load(p, 48);
      s6 = dot<T>(y3, x0, s6, ones);
      s7 = dot<T>(y3, x1, s7, ones);
      const y4 = v128.load(p, 64);
      s8 = dot<T>(y4, x0, s8, ones);
      s9 = dot<T>(y4, x1, s9, ones);
    }
  }
  s0 = i32x4.add(i32x4.add(s0, s1), i32x4.add(s2, s3));
  s4 = i32x4.add(i32x4.add(s4, s5), i32x4.add(s6, s7));
  return i32x4.extract_lane(i32x4.add(i32x4.add(s0, s4), i32x4.add(s8, s9)), 0);
}
