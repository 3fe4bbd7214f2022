/**
 * Register tiles like those of `f32-gemm-6x8.ts` over rows that lie anywhere: `list` holds their addresses. Steps are separate
 * blocks of code for the reason given there.
 */
import { fma } from '../simd/vector';

/** `c[6, 8] = w[6, K] x[K, 8]`, the rows of w contiguous in k. */
export function tileRowsListed(c: usize, list: usize, x: usize, depth: i32): void {
  let w0 = <usize>load<u32>(list);
  let w1 = <usize>load<u32>(list, 4);
  let w2 = <usize>load<u32>(list, 8);
  let w3 = <usize>load<u32>(list, 12);
  let w4 = <usize>load<u32>(list, 16);
  let w5 = <usize>load<u32>(list, 20);
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let b0 = a0;
  let b1 = a0;
  let c0 = a0;
  let c1 = a0;
  let d0 = a0;
  let d1 = a0;
  let e0 = a0;
  let e1 = a0;
  let f0 = a0;
  let f1 = a0;
  for (let k = depth; k > 0; k -= 4) {
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
    w = v128.load32_splat(w4);
    e0 = fma(w, low, e0);
    e1 = fma(w, high, e1);
    w = v128.load32_splat(w5);
    f0 = fma(w, low, f0);
    f1 = fma(w, high, f1);
    if (k == 1) break;
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
    w = v128.load32_splat(w4, 4);
    e0 = fma(w, low, e0);
    e1 = fma(w, high, e1);
    w = v128.load32_splat(w5, 4);
    f0 = fma(w, low, f0);
    f1 = fma(w, high, f1);
    if (k == 2) break;
    low = v128.load(x, 64);
    high = v128.load(x, 80);
    w = v128.load32_splat(w0, 8);
    a0 = fma(w, low, a0);
    a1 = fma(w, high, a1);
    w = v128.load32_splat(w1, 8);
    b0 = fma(w, low, b0);
    b1 = fma(w, high, b1);
    w = v128.load32_splat(w2, 8);
    c0 = fma(w, low, c0);
    c1 = fma(w, high, c1);
    w = v128.load32_splat(w3, 8);
    d0 = fma(w, low, d0);
    d1 = fma(w, high, d1);
    w = v128.load32_splat(w4, 8);
    e0 = fma(w, low, e0);
    e1 = fma(w, high, e1);
    w = v128.load32_splat(w5, 8);
    f0 = fma(w, low, f0);
    f1 = fma(w, high, f1);
    if (k == 3) break;
    low = v128.load(x, 96);
    high = v128.load(x, 112);
    w = v128.load32_splat(w0, 12);
    a0 = fma(w, low, a0);
    a1 = fma(w, high, a1);
    w = v128.load32_splat(w1, 12);
    b0 = fma(w, low, b0);
    b1 = fma(w, high, b1);
    w = v128.load32_splat(w2, 12);
    c0 = fma(w, low, c0);
    c1 = fma(w, high, c1);
    w = v128.load32_splat(w3, 12);
    d0 = fma(w, low, d0);
    d1 = fma(w, high, d1);
    w = v128.load32_splat(w4, 12);
    e0 = fma(w, low, e0);
    e1 = fma(w, high, e1);
    w = v128.load32_splat(w5, 12);
    f0 = fma(w, low, f0);
    f1 = fma(w, high, f1);
    x += 128;
    w0 += 16;
    w1 += 16;
    w2 += 16;
    w3 += 16;
    w4 += 16;
    w5 += 16;
  }
  v128.store(c, a0);
  v128.store(c, a1, 16);
  v128.store(c, b0, 32);
  v128.store(c, b1, 48);
  v128.store(c, c0, 64);
  v128.store(c, c1, 80);
  v128.store(c, d0, 96);
  v128.store(c, d1, 112);
  v128.store(c, e0, 128);
  v128.store(c, e1, 144);
  v128.store(c, f0, 160);
  v128.store(c, f1, 176);
}

/** The same of four rows that differ between the halves: columns 0 to 3 have those of `lows`, the others those of `highs`. */
export function tileRowsSplit(c: usize, lows: usize, highs: usize, x: usize, depth: i32): void {
  let w0 = <usize>load<u32>(lows);
  let w1 = <usize>load<u32>(lows, 4);
  let w2 = <usize>load<u32>(lows, 8);
  let w3 = <usize>load<u32>(lows, 12);
  let v0 = <usize>load<u32>(highs);
  let v1 = <usize>load<u32>(highs, 4);
  let v2 = <usize>load<u32>(highs, 8);
  let v3 = <usize>load<u32>(highs, 12);
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let b0 = a0;
  let b1 = a0;
  let c0 = a0;
  let c1 = a0;
  let d0 = a0;
  let d1 = a0;
  for (let k = depth; k > 0; k--) {
    const low = v128.load(x);
    const high = v128.load(x, 16);
    a0 = fma(v128.load32_splat(w0), low, a0);
    a1 = fma(v128.load32_splat(v0), high, a1);
    b0 = fma(v128.load32_splat(w1), low, b0);
    b1 = fma(v128.load32_splat(v1), high, b1);
    c0 = fma(v128.load32_splat(w2), low, c0);
    c1 = fma(v128.load32_splat(v2), high, c1);
    d0 = fma(v128.load32_splat(w3), low, d0);
    d1 = fma(v128.load32_splat(v3), high, d1);
    x += 32;
    w0 += 4;
    w1 += 4;
    w2 += 4;
    w3 += 4;
    v0 += 4;
    v1 += 4;
    v2 += 4;
    v3 += 4;
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

/** Products of four vectors with one of their own each; the length is a multiple of four. */
export function dotsListed(queries: usize, keys: usize, length: i32): v128 {
  let q0 = <usize>load<u32>(queries);
  let q1 = <usize>load<u32>(queries, 4);
  let q2 = <usize>load<u32>(queries, 8);
  let q3 = <usize>load<u32>(queries, 12);
  let k0 = <usize>load<u32>(keys);
  let k1 = <usize>load<u32>(keys, 4);
  let k2 = <usize>load<u32>(keys, 8);
  let k3 = <usize>load<u32>(keys, 12);
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let left = length;
  for (; left >= 16; left -= 16) {
    a = fma(v128.load(q0), v128.load(k0), a);
    b = fma(v128.load(q1), v128.load(k1), b);
    c = fma(v128.load(q2), v128.load(k2), c);
    d = fma(v128.load(q3), v128.load(k3), d);
    a = fma(v128.load(q0, 16), v128.load(k0, 16), a);
    b = fma(v128.load(q1, 16), v128.load(k1, 16), b);
    c = fma(v128.load(q2, 16), v128.load(k2, 16), c);
    d = fma(v128.load(q3, 16), v128.load(k3, 16), d);
    a = fma(v128.load(q0, 32), v128.load(k0, 32), a);
    b = fma(v128.load(q1, 32), v128.load(k1, 32), b);
    c = fma(v128.load(q2, 32), v128.load(k2, 32), c);
    d = fma(v128.load(q3, 32), v128.load(k3, 32), d);
    a = fma(v128.load(q0, 48), v128.load(k0, 48), a);
    b = fma(v128.load(q1, 48), v128.load(k1, 48), b);
    c = fma(v128.load(q2, 48), v128.load(k2, 48), c);
    d = fma(v128.load(q3, 48), v128.load(k3, 48), d);
    q0 += 64;
    q1 += 64;
    q2 += 64;
    q3 += 64;
    k0 += 64;
    k1 += 64;
    k2 += 64;
    k3 += 64;
  }
  for (; left > 0; left -= 4) {
    a = fma(v128.load(q0), v128.load(k0), a);
    b = fma(v128.load(q1), v128.load(k1), b);
    c = fma(v128.load(q2), v128.load(k2), c);
    d = fma(v128.load(q3), v128.load(k3), d);
    q0 += 16;
    q1 += 16;
    q2 += 16;
    q3 += 16;
    k0 += 16;
    k1 += 16;
    k2 += 16;
    k3 += 16;
  }
  const ab = i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const ab2 = i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  const cd = i8x16.shuffle(c, d, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const cd2 = i8x16.shuffle(c, d, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  const low = f32x4.add(ab, ab2);
  const high = f32x4.add(cd, cd2);
  return f32x4.add(
    i8x16.shuffle(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
    i8x16.shuffle(low, high, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31),
  );
}
