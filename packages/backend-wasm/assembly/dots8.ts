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

/**
 * Two groups (eight rows) and four tokens. Codes of tokens lie `xStride` bytes apart, metas `metaStride`; sums
 * `[token][4]` of a group at c0 and c1 are added to.
 */
export function tile2x4(
  p0: usize,
  p1: usize,
  numBlocks: i32,
  x: usize,
  xStride: usize,
  meta: usize,
  metaStride: usize,
  initial: usize,
  halves: bool,
  c0: usize,
  c1: usize,
): void {
  let x1 = x + xStride;
  let x2 = x1 + xStride;
  let x3 = x2 + xStride;
  let s0 = v128.load(c0);
  let s1 = v128.load(c0, 16);
  let s2 = v128.load(c0, 32);
  let s3 = v128.load(c0, 48);
  let t0 = v128.load(c1);
  let t1 = v128.load(c1, 16);
  let t2 = v128.load(c1, 32);
  let t3 = v128.load(c1, 48);
  const numParts: usize = halves ? 2 : 1;
  const columns: usize = halves ? 16 : 32;
  for (let block = 0; block < numBlocks; block++) {
    const m1 = meta + metaStride;
    const m2 = m1 + metaStride;
    const m3 = m2 + metaStride;
    const d0 = v128.load32_splat(meta);
    const d1 = v128.load32_splat(m1);
    const d2 = v128.load32_splat(m2);
    const d3 = v128.load32_splat(m3);
    for (let part: usize = 0; part < numParts; part++) {
      const start = initial + (part << 2);
      let a0 = v128.load32_splat(meta + start);
      let a1 = v128.load32_splat(m1 + start);
      let a2 = v128.load32_splat(m2 + start);
      let a3 = v128.load32_splat(m3 + start);
      let b0 = a0;
      let b1 = a1;
      let b2 = a2;
      let b3 = a3;
      let codes0 = p0 + (part << 6);
      let codes1 = p1 + (part << 6);
      const end = x + columns;
      for (; x < end; x += 16) {
        let u = v128.load(codes0);
        let v = v128.load(codes1);
        let y = v128.load32_splat(x);
        a0 = dot(y, u, a0);
        b0 = dot(y, v, b0);
        y = v128.load32_splat(x1);
        a1 = dot(y, u, a1);
        b1 = dot(y, v, b1);
        y = v128.load32_splat(x2);
        a2 = dot(y, u, a2);
        b2 = dot(y, v, b2);
        y = v128.load32_splat(x3);
        a3 = dot(y, u, a3);
        b3 = dot(y, v, b3);
        u = v128.load(codes0, 16);
        v = v128.load(codes1, 16);
        y = v128.load32_splat(x, 4);
        a0 = dot(y, u, a0);
        b0 = dot(y, v, b0);
        y = v128.load32_splat(x1, 4);
        a1 = dot(y, u, a1);
        b1 = dot(y, v, b1);
        y = v128.load32_splat(x2, 4);
        a2 = dot(y, u, a2);
        b2 = dot(y, v, b2);
        y = v128.load32_splat(x3, 4);
        a3 = dot(y, u, a3);
        b3 = dot(y, v, b3);
        u = v128.load(codes0, 32);
        v = v128.load(codes1, 32);
        y = v128.load32_splat(x, 8);
        a0 = dot(y, u, a0);
        b0 = dot(y, v, b0);
        y = v128.load32_splat(x1, 8);
        a1 = dot(y, u, a1);
        b1 = dot(y, v, b1);
        y = v128.load32_splat(x2, 8);
        a2 = dot(y, u, a2);
        b2 = dot(y, v, b2);
        y = v128.load32_splat(x3, 8);
        a3 = dot(y, u, a3);
        b3 = dot(y, v, b3);
        u = v128.load(codes0, 48);
        v = v128.load(codes1, 48);
        y = v128.load32_splat(x, 12);
        a0 = dot(y, u, a0);
        b0 = dot(y, v, b0);
        y = v128.load32_splat(x1, 12);
        a1 = dot(y, u, a1);
        b1 = dot(y, v, b1);
        y = v128.load32_splat(x2, 12);
        a2 = dot(y, u, a2);
        b2 = dot(y, v, b2);
        y = v128.load32_splat(x3, 12);
        a3 = dot(y, u, a3);
        b3 = dot(y, v, b3);
        codes0 += 64;
        codes1 += 64;
        x1 += 16;
        x2 += 16;
        x3 += 16;
      }
      const scale = v128.load(p0 + 128 + (part << 4));
      s0 = fma(f32x4.convert_i32x4_s(a0), f32x4.mul(scale, d0), s0);
      s1 = fma(f32x4.convert_i32x4_s(a1), f32x4.mul(scale, d1), s1);
      s2 = fma(f32x4.convert_i32x4_s(a2), f32x4.mul(scale, d2), s2);
      s3 = fma(f32x4.convert_i32x4_s(a3), f32x4.mul(scale, d3), s3);
      const other = v128.load(p1 + 128 + (part << 4));
      t0 = fma(f32x4.convert_i32x4_s(b0), f32x4.mul(other, d0), t0);
      t1 = fma(f32x4.convert_i32x4_s(b1), f32x4.mul(other, d1), t1);
      t2 = fma(f32x4.convert_i32x4_s(b2), f32x4.mul(other, d2), t2);
      t3 = fma(f32x4.convert_i32x4_s(b3), f32x4.mul(other, d3), t3);
    }
    if (!halves) {
      const offset = v128.load(p0, 144);
      const other = v128.load(p1, 144);
      let y = v128.load32_splat(meta, META_SUM);
      s0 = fma(offset, y, s0);
      t0 = fma(other, y, t0);
      y = v128.load32_splat(m1, META_SUM);
      s1 = fma(offset, y, s1);
      t1 = fma(other, y, t1);
      y = v128.load32_splat(m2, META_SUM);
      s2 = fma(offset, y, s2);
      t2 = fma(other, y, t2);
      y = v128.load32_splat(m3, META_SUM);
      s3 = fma(offset, y, s3);
      t3 = fma(other, y, t3);
    }
    meta += META_BYTES;
    p0 += EXPANDED_BYTES;
    p1 += EXPANDED_BYTES;
  }
  v128.store(c0, s0);
  v128.store(c0, s1, 16);
  v128.store(c0, s2, 32);
  v128.store(c0, s3, 48);
  v128.store(c1, t0);
  v128.store(c1, t1, 16);
  v128.store(c1, t2, 32);
  v128.store(c1, t3, 48);
}
