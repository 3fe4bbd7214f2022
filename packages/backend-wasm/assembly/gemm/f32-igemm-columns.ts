/** Register tiles of columns, like those of `f32-gemm-6x8.ts`, of rows that lie anywhere: `list` holds their addresses. */
import { fma } from '../simd/vector';

/**
 * `c[6, 8] = w[6, K] x[K, 8]`, the six numbers of a k side by side `column` bytes from the k-th address on. Of the last
 * `splits` rows, which are not in `depth`, columns 4 to 7 have the addresses at `highs`.
 */
export function tileColumnsListed6(c: usize, list: usize, column: usize, x: usize, depth: i32, highs: usize, splits: i32): void {
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
  for (; depth >= 4; depth -= 4) {
    let w = <usize>load<u32>(list) + column;
    let xl = v128.load(x);
    let xh = v128.load(x, 16);
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
    v = v128.load32_splat(w, 16);
    e0 = fma(v, xl, e0);
    e1 = fma(v, xh, e1);
    v = v128.load32_splat(w, 20);
    f0 = fma(v, xl, f0);
    f1 = fma(v, xh, f1);
    if (depth == 1) break;
    w = <usize>load<u32>(list, 4) + column;
    xl = v128.load(x, 32);
    xh = v128.load(x, 48);
    v = v128.load32_splat(w);
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
    v = v128.load32_splat(w, 16);
    e0 = fma(v, xl, e0);
    e1 = fma(v, xh, e1);
    v = v128.load32_splat(w, 20);
    f0 = fma(v, xl, f0);
    f1 = fma(v, xh, f1);
    if (depth == 2) break;
    w = <usize>load<u32>(list, 8) + column;
    xl = v128.load(x, 64);
    xh = v128.load(x, 80);
    v = v128.load32_splat(w);
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
    v = v128.load32_splat(w, 16);
    e0 = fma(v, xl, e0);
    e1 = fma(v, xh, e1);
    v = v128.load32_splat(w, 20);
    f0 = fma(v, xl, f0);
    f1 = fma(v, xh, f1);
    if (depth == 3) break;
    w = <usize>load<u32>(list, 12) + column;
    xl = v128.load(x, 96);
    xh = v128.load(x, 112);
    v = v128.load32_splat(w);
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
    v = v128.load32_splat(w, 16);
    e0 = fma(v, xl, e0);
    e1 = fma(v, xh, e1);
    v = v128.load32_splat(w, 20);
    f0 = fma(v, xl, f0);
    f1 = fma(v, xh, f1);
    list += 16;
    x += 128;
  }
  for (; depth > 0; depth--, list += 4, x += 32) {
    const w = <usize>load<u32>(list) + column;
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
    v = v128.load32_splat(w, 16);
    e0 = fma(v, xl, e0);
    e1 = fma(v, xh, e1);
    v = v128.load32_splat(w, 20);
    f0 = fma(v, xl, f0);
    f1 = fma(v, xh, f1);
  }
  for (; splits > 0; splits--, list += 4, highs += 4, x += 32) {
    const w = <usize>load<u32>(list) + column;
    const u = <usize>load<u32>(highs) + column;
    const xl = v128.load(x);
    const xh = v128.load(x, 16);
    a0 = fma(v128.load32_splat(w), xl, a0);
    a1 = fma(v128.load32_splat(u), xh, a1);
    b0 = fma(v128.load32_splat(w, 4), xl, b0);
    b1 = fma(v128.load32_splat(u, 4), xh, b1);
    c0 = fma(v128.load32_splat(w, 8), xl, c0);
    c1 = fma(v128.load32_splat(u, 8), xh, c1);
    d0 = fma(v128.load32_splat(w, 12), xl, d0);
    d1 = fma(v128.load32_splat(u, 12), xh, d1);
    e0 = fma(v128.load32_splat(w, 16), xl, e0);
    e1 = fma(v128.load32_splat(u, 16), xh, e1);
    f0 = fma(v128.load32_splat(w, 20), xl, f0);
    f1 = fma(v128.load32_splat(u, 20), xh, f1);
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

/** The same of four numbers. */
export function tileColumnsListed4(c: usize, list: usize, column: usize, x: usize, depth: i32, highs: usize, splits: i32): void {
  let a0 = f32x4.splat(0);
  let a1 = a0;
  let b0 = a0;
  let b1 = a0;
  let c0 = a0;
  let c1 = a0;
  let d0 = a0;
  let d1 = a0;
  for (let k = depth; k > 0; k--) {
    let w = <usize>load<u32>(list) + column;
    let xl = v128.load(x);
    let xh = v128.load(x, 16);
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
    list += 4;
    x += 32;
  }
  for (; splits > 0; splits--, list += 4, highs += 4, x += 32) {
    const w = <usize>load<u32>(list) + column;
    const u = <usize>load<u32>(highs) + column;
    const xl = v128.load(x);
    const xh = v128.load(x, 16);
    a0 = fma(v128.load32_splat(w), xl, a0);
    a1 = fma(v128.load32_splat(u), xh, a1);
    b0 = fma(v128.load32_splat(w, 4), xl, b0);
    b1 = fma(v128.load32_splat(u, 4), xh, b1);
    c0 = fma(v128.load32_splat(w, 8), xl, c0);
    c1 = fma(v128.load32_splat(u, 8), xh, c1);
    d0 = fma(v128.load32_splat(w, 12), xl, d0);
    d1 = fma(v128.load32_splat(u, 12), xh, d1);
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
