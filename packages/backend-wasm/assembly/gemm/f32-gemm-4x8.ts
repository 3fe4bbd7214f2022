/**
 * Register tiles of products in f32. The right-hand side is packed with eight columns side by side: `x[k, 8]`. Four rows of
 * the left-hand side are read one number at a time, so that they need no packing.
 */
import { fma } from '../simd/vector';

/** `c[4, 8] (+)= w[4, K] x[K, 8]`, the rows of w at four addresses, contiguous in k. */
export function tileRows(c: usize, w0: usize, w1: usize, w2: usize, w3: usize, x: usize, depth: i32, add: bool): void {
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let b0 = a0;
  let b1 = a0;
  let c0 = a0;
  let c1 = a0;
  let d0 = a0;
  let d1 = a0;
  if (add) {
    a0 = v128.load(c);
    a1 = v128.load(c, 16);
    b0 = v128.load(c, 32);
    b1 = v128.load(c, 48);
    c0 = v128.load(c, 64);
    c1 = v128.load(c, 80);
    d0 = v128.load(c, 96);
    d1 = v128.load(c, 112);
  }
  let k = depth;
  for (; k >= 2; k -= 2) {
    let low = v128.load(x);
    let high = v128.load(x, 16);
    let w = v128.load32_splat(w0);
    a0 = fma(w, low, a0);
    a1 = fma(w, high, a1);
    w = v128.load32_splat(w1);
    b0 = fma(w, low, b0);
    b1 = fma(w, high, b1);
    w = v128.load32_splat(w2);
    c0 = fma(w, low, c0);
    c1 = fma(w, high, c1);
    w = v128.load32_splat(w3);
    d0 = fma(w, low, d0);
    d1 = fma(w, high, d1);
    low = v128.load(x, 32);
    high = v128.load(x, 48);
    w = v128.load32_splat(w0, 4);
    a0 = fma(w, low, a0);
    a1 = fma(w, high, a1);
    w = v128.load32_splat(w1, 4);
    b0 = fma(w, low, b0);
    b1 = fma(w, high, b1);
    w = v128.load32_splat(w2, 4);
    c0 = fma(w, low, c0);
    c1 = fma(w, high, c1);
    w = v128.load32_splat(w3, 4);
    d0 = fma(w, low, d0);
    d1 = fma(w, high, d1);
    x += 64;
    w0 += 8;
    w1 += 8;
    w2 += 8;
    w3 += 8;
  }
  if (k > 0) {
    const low = v128.load(x);
    const high = v128.load(x, 16);
    let w = v128.load32_splat(w0);
    a0 = fma(w, low, a0);
    a1 = fma(w, high, a1);
    w = v128.load32_splat(w1);
    b0 = fma(w, low, b0);
    b1 = fma(w, high, b1);
    w = v128.load32_splat(w2);
    c0 = fma(w, low, c0);
    c1 = fma(w, high, c1);
    w = v128.load32_splat(w3);
    d0 = fma(w, low, d0);
    d1 = fma(w, high, d1);
  }
  v128.store(c, a0);
  v128.store(c, a1, 16);
  v128.store(c, b0, 32);
  v128.store(c, b1, 48);
  v128.store(c, c0, 64);
  v128.store(c, c1, 80);
  v128.store(c, d0, 96);
  v128.store(c, d1, 112);
}

/** `c[4, 8] = c * factor[8] + w[4, K] x[K, 8]`, the four rows of w side by side and `stride` bytes from k to k. */
export function tileColumns(c: usize, w: usize, stride: usize, x: usize, depth: i32, low: v128, high: v128): void {
  let a0 = f32x4.mul(v128.load(c), low);
  let a1 = f32x4.mul(v128.load(c, 16), high);
  let b0 = f32x4.mul(v128.load(c, 32), low);
  let b1 = f32x4.mul(v128.load(c, 48), high);
  let c0 = f32x4.mul(v128.load(c, 64), low);
  let c1 = f32x4.mul(v128.load(c, 80), high);
  let d0 = f32x4.mul(v128.load(c, 96), low);
  let d1 = f32x4.mul(v128.load(c, 112), high);
  for (let k = depth; k > 0; k--) {
    const xl = v128.load(x);
    const xh = v128.load(x, 16);
    let v = v128.load32_splat(w);
    a0 = fma(v, xl, a0);
    a1 = fma(v, xh, a1);
    v = v128.load32_splat(w, 4);
    b0 = fma(v, xl, b0);
    b1 = fma(v, xh, b1);
    v = v128.load32_splat(w, 8);
    c0 = fma(v, xl, c0);
    c1 = fma(v, xh, c1);
    v = v128.load32_splat(w, 12);
    d0 = fma(v, xl, d0);
    d1 = fma(v, xh, d1);
    x += 32;
    w += stride;
  }
  v128.store(c, a0);
  v128.store(c, a1, 16);
  v128.store(c, b0, 32);
  v128.store(c, b1, 48);
  v128.store(c, c0, 64);
  v128.store(c, c1, 80);
  v128.store(c, d0, 96);
  v128.store(c, d1, 112);
}
