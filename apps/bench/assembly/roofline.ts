/**
 * The loops that find out what this machine can do from WebAssembly: reading memory, float and integer multiply-adds.
 * The arithmetic loops keep ten independent accumulators and take one operand of every two operations from the first
 * level cache, so that neither latency nor memory limits them.
 */

/** Writes every byte of `[begin, begin + sizeBytes)`, so that all pages are real. */
export function fill(begin: usize, sizeBytes: usize): void {
  const value = i32x4.splat(0x01010101);
  for (let p = begin, end = begin + sizeBytes; p < end; p += 16) v128.store(p, value);
}

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
  return sumI32(i32x4.add(i32x4.add(s0, s1), i32x4.add(s2, s3)));
}

function sumI32(v: v128): i32 {
  return (
    i32x4.extract_lane(v, 0) + i32x4.extract_lane(v, 1) + i32x4.extract_lane(v, 2) + i32x4.extract_lane(v, 3)
  );
}

function sumF32(v: v128): i32 {
  const sum =
    f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3);
  return <i32>sum;
}

function mulAdd(a: v128, b: v128, c: v128): v128 {
  return f32x4.add(f32x4.mul(a, b), c);
}

function relaxedMulAdd(a: v128, b: v128, c: v128): v128 {
  return f32x4.relaxed_madd(a, b, c);
}

function dotI16(a: v128, b: v128, c: v128): v128 {
  return i32x4.add(i32x4.dot_i16x8_s(a, b), c);
}

function dotI8(a: v128, b: v128, c: v128): v128 {
  return i32x4.relaxed_dot_i8x16_i7x16_add_s(a, b, c);
}

/** Product and sum as two operations, 4 lanes. `passes` times 8 steps of 10 operations. */
export function f32MulAdd(data: usize, passes: i32): i32 {
  const x0 = v128.load(data);
  const x1 = v128.load(data, 16);
  const begin = data + 32;
  const end = begin + 8 * 80;
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
    for (let p = begin; p < end; p += 80) {
      const y0 = v128.load(p, 0);
      s0 = mulAdd(y0, x0, s0);
      s1 = mulAdd(y0, x1, s1);
      const y1 = v128.load(p, 16);
      s2 = mulAdd(y1, x0, s2);
      s3 = mulAdd(y1, x1, s3);
      const y2 = v128.load(p, 32);
      s4 = mulAdd(y2, x0, s4);
      s5 = mulAdd(y2, x1, s5);
      const y3 = v128.load(p, 48);
      s6 = mulAdd(y3, x0, s6);
      s7 = mulAdd(y3, x1, s7);
      const y4 = v128.load(p, 64);
      s8 = mulAdd(y4, x0, s8);
      s9 = mulAdd(y4, x1, s9);
    }
  }
  s0 = f32x4.add(s0, s1);
  s0 = f32x4.add(s0, s2);
  s0 = f32x4.add(s0, s3);
  s0 = f32x4.add(s0, s4);
  s0 = f32x4.add(s0, s5);
  s0 = f32x4.add(s0, s6);
  s0 = f32x4.add(s0, s7);
  s0 = f32x4.add(s0, s8);
  s0 = f32x4.add(s0, s9);
  return sumF32(s0);
}

/** Fused multiply-add of relaxed SIMD, 4 lanes. `passes` times 8 steps of 10 operations. */
export function f32RelaxedMulAdd(data: usize, passes: i32): i32 {
  const x0 = v128.load(data);
  const x1 = v128.load(data, 16);
  const begin = data + 32;
  const end = begin + 8 * 80;
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
    for (let p = begin; p < end; p += 80) {
      const y0 = v128.load(p, 0);
      s0 = relaxedMulAdd(y0, x0, s0);
      s1 = relaxedMulAdd(y0, x1, s1);
      const y1 = v128.load(p, 16);
      s2 = relaxedMulAdd(y1, x0, s2);
      s3 = relaxedMulAdd(y1, x1, s3);
      const y2 = v128.load(p, 32);
      s4 = relaxedMulAdd(y2, x0, s4);
      s5 = relaxedMulAdd(y2, x1, s5);
      const y3 = v128.load(p, 48);
      s6 = relaxedMulAdd(y3, x0, s6);
      s7 = relaxedMulAdd(y3, x1, s7);
      const y4 = v128.load(p, 64);
      s8 = relaxedMulAdd(y4, x0, s8);
      s9 = relaxedMulAdd(y4, x1, s9);
    }
  }
  s0 = f32x4.add(s0, s1);
  s0 = f32x4.add(s0, s2);
  s0 = f32x4.add(s0, s3);
  s0 = f32x4.add(s0, s4);
  s0 = f32x4.add(s0, s5);
  s0 = f32x4.add(s0, s6);
  s0 = f32x4.add(s0, s7);
  s0 = f32x4.add(s0, s8);
  s0 = f32x4.add(s0, s9);
  return sumF32(s0);
}

/** Products of 8 pairs of 16-bit integers, added to 4 sums. `passes` times 8 steps of 10 operations. */
export function i16Dot(data: usize, passes: i32): i32 {
  const x0 = v128.load(data);
  const x1 = v128.load(data, 16);
  const begin = data + 32;
  const end = begin + 8 * 80;
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
    for (let p = begin; p < end; p += 80) {
      const y0 = v128.load(p, 0);
      s0 = dotI16(y0, x0, s0);
      s1 = dotI16(y0, x1, s1);
      const y1 = v128.load(p, 16);
      s2 = dotI16(y1, x0, s2);
      s3 = dotI16(y1, x1, s3);
      const y2 = v128.load(p, 32);
      s4 = dotI16(y2, x0, s4);
      s5 = dotI16(y2, x1, s5);
      const y3 = v128.load(p, 48);
      s6 = dotI16(y3, x0, s6);
      s7 = dotI16(y3, x1, s7);
      const y4 = v128.load(p, 64);
      s8 = dotI16(y4, x0, s8);
      s9 = dotI16(y4, x1, s9);
    }
  }
  s0 = i32x4.add(s0, s1);
  s0 = i32x4.add(s0, s2);
  s0 = i32x4.add(s0, s3);
  s0 = i32x4.add(s0, s4);
  s0 = i32x4.add(s0, s5);
  s0 = i32x4.add(s0, s6);
  s0 = i32x4.add(s0, s7);
  s0 = i32x4.add(s0, s8);
  s0 = i32x4.add(s0, s9);
  return sumI32(s0);
}

/** Products of 16 pairs of bytes, added to 4 sums; relaxed SIMD. `passes` times 8 steps of 10 operations. */
export function i8RelaxedDot(data: usize, passes: i32): i32 {
  const x0 = v128.load(data);
  const x1 = v128.load(data, 16);
  const begin = data + 32;
  const end = begin + 8 * 80;
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
    for (let p = begin; p < end; p += 80) {
      const y0 = v128.load(p, 0);
      s0 = dotI8(y0, x0, s0);
      s1 = dotI8(y0, x1, s1);
      const y1 = v128.load(p, 16);
      s2 = dotI8(y1, x0, s2);
      s3 = dotI8(y1, x1, s3);
      const y2 = v128.load(p, 32);
      s4 = dotI8(y2, x0, s4);
      s5 = dotI8(y2, x1, s5);
      const y3 = v128.load(p, 48);
      s6 = dotI8(y3, x0, s6);
      s7 = dotI8(y3, x1, s7);
      const y4 = v128.load(p, 64);
      s8 = dotI8(y4, x0, s8);
      s9 = dotI8(y4, x1, s9);
    }
  }
  s0 = i32x4.add(s0, s1);
  s0 = i32x4.add(s0, s2);
  s0 = i32x4.add(s0, s3);
  s0 = i32x4.add(s0, s4);
  s0 = i32x4.add(s0, s5);
  s0 = i32x4.add(s0, s6);
  s0 = i32x4.add(s0, s7);
  s0 = i32x4.add(s0, s8);
  s0 = i32x4.add(s0, s9);
  return sumI32(s0);
}

/**
 * The inner loop of a matrix product as kernels write it: a tile of 4 x 8 sums over packed panels of 128 steps that stay
 * in the first level cache. 8 multiply-adds of 4 lanes per step.
 */
export function f32Tile(data: usize, passes: i32): i32 {
  const panelB = data + 128 * 16;
  let total = f32x4.splat(0);
  for (let pass = 0; pass < passes; pass++) {
    let c00 = f32x4.splat(0);
    let c01 = c00;
    let c10 = c00;
    let c11 = c00;
    let c20 = c00;
    let c21 = c00;
    let c30 = c00;
    let c31 = c00;
    for (let k: usize = 0; k < 128; k++) {
      const a = data + (k << 4);
      const b = panelB + (k << 5);
      const b0 = v128.load(b);
      const b1 = v128.load(b, 16);
      const a0 = v128.load32_splat(a, 0);
      c00 = f32x4.relaxed_madd(a0, b0, c00);
      c01 = f32x4.relaxed_madd(a0, b1, c01);
      const a1 = v128.load32_splat(a, 4);
      c10 = f32x4.relaxed_madd(a1, b0, c10);
      c11 = f32x4.relaxed_madd(a1, b1, c11);
      const a2 = v128.load32_splat(a, 8);
      c20 = f32x4.relaxed_madd(a2, b0, c20);
      c21 = f32x4.relaxed_madd(a2, b1, c21);
      const a3 = v128.load32_splat(a, 12);
      c30 = f32x4.relaxed_madd(a3, b0, c30);
      c31 = f32x4.relaxed_madd(a3, b1, c31);
    }
    const upper = f32x4.add(f32x4.add(c00, c01), f32x4.add(c10, c11));
    const lower = f32x4.add(f32x4.add(c20, c21), f32x4.add(c30, c31));
    total = f32x4.add(total, f32x4.add(upper, lower));
  }
  return sumF32(total);
}
