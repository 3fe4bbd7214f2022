/** Register tiles of products in f32 for at most four columns: `x[k, 4]`, eight rows of the left-hand side at a time. */
import { fma } from '../simd/vector';

/** `c[8, 4] = w[8, K] x[K, 4]`; the rows of w are `stride` bytes apart, those from `numRows` on count as the last one. */
export function tileRows8x4(c: usize, w: usize, stride: usize, numRows: i32, x: usize, depth: i32): void {
  const last = w + <usize>(min<i32>(numRows, 8) - 1) * stride;
  let w0 = w;
  let w1 = min<usize>(last, w + stride);
  let w2 = min<usize>(last, w + 2 * stride);
  let w3 = min<usize>(last, w + 3 * stride);
  let w4 = min<usize>(last, w + 4 * stride);
  let w5 = min<usize>(last, w + 5 * stride);
  let w6 = min<usize>(last, w + 6 * stride);
  let w7 = last;
  let c0 = f32x4.splat(0);
  let c1 = c0;
  let c2 = c0;
  let c3 = c0;
  let c4 = c0;
  let c5 = c0;
  let c6 = c0;
  let c7 = c0;
  let k = depth;
  for (; k >= 2; k -= 2) {
    let v = v128.load(x);
    c0 = fma(v128.load32_splat(w0), v, c0);
    c1 = fma(v128.load32_splat(w1), v, c1);
    c2 = fma(v128.load32_splat(w2), v, c2);
    c3 = fma(v128.load32_splat(w3), v, c3);
    c4 = fma(v128.load32_splat(w4), v, c4);
    c5 = fma(v128.load32_splat(w5), v, c5);
    c6 = fma(v128.load32_splat(w6), v, c6);
    c7 = fma(v128.load32_splat(w7), v, c7);
    v = v128.load(x, 16);
    c0 = fma(v128.load32_splat(w0, 4), v, c0);
    c1 = fma(v128.load32_splat(w1, 4), v, c1);
    c2 = fma(v128.load32_splat(w2, 4), v, c2);
    c3 = fma(v128.load32_splat(w3, 4), v, c3);
    c4 = fma(v128.load32_splat(w4, 4), v, c4);
    c5 = fma(v128.load32_splat(w5, 4), v, c5);
    c6 = fma(v128.load32_splat(w6, 4), v, c6);
    c7 = fma(v128.load32_splat(w7, 4), v, c7);
    x += 32;
    w0 += 8;
    w1 += 8;
    w2 += 8;
    w3 += 8;
    w4 += 8;
    w5 += 8;
    w6 += 8;
    w7 += 8;
  }
  if (k > 0) {
    const v = v128.load(x);
    c0 = fma(v128.load32_splat(w0), v, c0);
    c1 = fma(v128.load32_splat(w1), v, c1);
    c2 = fma(v128.load32_splat(w2), v, c2);
    c3 = fma(v128.load32_splat(w3), v, c3);
    c4 = fma(v128.load32_splat(w4), v, c4);
    c5 = fma(v128.load32_splat(w5), v, c5);
    c6 = fma(v128.load32_splat(w6), v, c6);
    c7 = fma(v128.load32_splat(w7), v, c7);
  }
  v128.store(c, c0);
  v128.store(c, c1, 16);
  v128.store(c, c2, 32);
  v128.store(c, c3, 48);
  v128.store(c, c4, 64);
  v128.store(c, c5, 80);
  v128.store(c, c6, 96);
  v128.store(c, c7, 112);
}

/** `c[8, 4] = c * factor[4] + w[8, K] x[K, 4]`, the eight rows of w side by side and `stride` bytes from k to k. */
export function tileColumns8x4(c: usize, w: usize, stride: usize, x: usize, depth: i32, factor: v128): void {
  let c0 = f32x4.mul(v128.load(c), factor);
  let c1 = f32x4.mul(v128.load(c, 16), factor);
  let c2 = f32x4.mul(v128.load(c, 32), factor);
  let c3 = f32x4.mul(v128.load(c, 48), factor);
  let c4 = f32x4.mul(v128.load(c, 64), factor);
  let c5 = f32x4.mul(v128.load(c, 80), factor);
  let c6 = f32x4.mul(v128.load(c, 96), factor);
  let c7 = f32x4.mul(v128.load(c, 112), factor);
  for (let k = depth; k > 0; k--) {
    const v = v128.load(x);
    c0 = fma(v128.load32_splat(w), v, c0);
    c1 = fma(v128.load32_splat(w, 4), v, c1);
    c2 = fma(v128.load32_splat(w, 8), v, c2);
    c3 = fma(v128.load32_splat(w, 12), v, c3);
    c4 = fma(v128.load32_splat(w, 16), v, c4);
    c5 = fma(v128.load32_splat(w, 20), v, c5);
    c6 = fma(v128.load32_splat(w, 24), v, c6);
    c7 = fma(v128.load32_splat(w, 28), v, c7);
    x += 16;
    w += stride;
  }
  v128.store(c, c0);
  v128.store(c, c1, 16);
  v128.store(c, c2, 32);
  v128.store(c, c3, 48);
  v128.store(c, c4, 64);
  v128.store(c, c5, 80);
  v128.store(c, c6, 96);
  v128.store(c, c7, 112);
}
