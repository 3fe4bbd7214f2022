/**
 * Products with packed q8_0 on machines whose dot products do not take unsigned codes above 127: those of SSE and AVX2, and signed
 * ones. The numbers of int8-gemv.ts and int8-gemm.ts, bit by bit. Activations are magnitudes [32] and flips [32] of each block.
 * Products are added up by pairs where T is i16. Relaxed builds only.
 */
import { halfFactor, halfMask, onePairs } from '../simd/constants';
import { dotFlipped } from './int8-dot';
import { scales4 } from './int8-unpack';
import { META_BYTES, META_START_Q8, SIDE_BYTES } from '../quant/quantize-activations';
import { fma } from '../simd/vector';

/** Adds the products of one block of four rows. */
// @inline
function flippedBlock<T>(at: usize, x: usize, initial: v128, scale: v128, ones: v128, sums: v128): v128 {
  let a = initial;
  let b = i32x4.splat(0);
  a = dotFlipped<T>(v128.load32_splat(x), v128.load32_splat(x, 32), v128.load(at, 8), a, ones);
  b = dotFlipped<T>(v128.load32_splat(x, 4), v128.load32_splat(x, 36), v128.load(at, 24), b, ones);
  a = dotFlipped<T>(v128.load32_splat(x, 8), v128.load32_splat(x, 40), v128.load(at, 40), a, ones);
  b = dotFlipped<T>(v128.load32_splat(x, 12), v128.load32_splat(x, 44), v128.load(at, 56), b, ones);
  a = dotFlipped<T>(v128.load32_splat(x, 16), v128.load32_splat(x, 48), v128.load(at, 72), a, ones);
  b = dotFlipped<T>(v128.load32_splat(x, 20), v128.load32_splat(x, 52), v128.load(at, 88), b, ones);
  a = dotFlipped<T>(v128.load32_splat(x, 24), v128.load32_splat(x, 56), v128.load(at, 104), a, ones);
  b = dotFlipped<T>(v128.load32_splat(x, 28), v128.load32_splat(x, 60), v128.load(at, 120), b, ones);
  return fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), scale, sums);
}

/** As `packedDots`. */
export function flippedDots<T>(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  const mask = halfMask();
  const factor = halfFactor();
  const ones = onePairs();
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++, at += 136, x += SIDE_BYTES, meta += META_BYTES) {
    const scale = f32x4.mul(scales4(at, mask, factor), v128.load32_splat(meta));
    sums = flippedBlock<T>(at, x, v128.load32_splat(meta, META_START_Q8), scale, ones, sums);
  }
  return sums;
}

/** As `packedDotsSideBySide`: eight groups. */
export function flippedDotsSideBySide<T>(
  p: usize,
  stride: usize,
  numBlocks: i32,
  x: usize,
  meta: usize,
  to: usize,
): void {
  const mask = halfMask();
  const factor = halfFactor();
  const ones = onePairs();
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let s4 = s0;
  let s5 = s0;
  let s6 = s0;
  let s7 = s0;
  for (let block = 0; block < numBlocks; block++, p += 136, x += SIDE_BYTES, meta += META_BYTES) {
    const initial = v128.load32_splat(meta, META_START_Q8);
    const d = v128.load32_splat(meta);
    let q = p;
    s0 = flippedBlock<T>(q, x, initial, f32x4.mul(scales4(q, mask, factor), d), ones, s0);
    q += stride;
    s1 = flippedBlock<T>(q, x, initial, f32x4.mul(scales4(q, mask, factor), d), ones, s1);
    q += stride;
    s2 = flippedBlock<T>(q, x, initial, f32x4.mul(scales4(q, mask, factor), d), ones, s2);
    q += stride;
    s3 = flippedBlock<T>(q, x, initial, f32x4.mul(scales4(q, mask, factor), d), ones, s3);
    q += stride;
    s4 = flippedBlock<T>(q, x, initial, f32x4.mul(scales4(q, mask, factor), d), ones, s4);
    q += stride;
    s5 = flippedBlock<T>(q, x, initial, f32x4.mul(scales4(q, mask, factor), d), ones, s5);
    q += stride;
    s6 = flippedBlock<T>(q, x, initial, f32x4.mul(scales4(q, mask, factor), d), ones, s6);
    q += stride;
    s7 = flippedBlock<T>(q, x, initial, f32x4.mul(scales4(q, mask, factor), d), ones, s7);
  }
  v128.store(to, s0);
  v128.store(to, s1, 16);
  v128.store(to, s2, 32);
  v128.store(to, s3, 48);
  v128.store(to, s4, 64);
  v128.store(to, s5, 80);
  v128.store(to, s6, 96);
  v128.store(to, s7, 112);
}

/** As `blockTimesTokens`: one block of four rows, codes at `p`. */
export function flippedTokens<T>(p: usize, scale: v128, x: usize, meta: usize, sums: usize, numTokens: i32): void {
  const u0 = v128.load(p);
  const u1 = v128.load(p, 16);
  const u2 = v128.load(p, 32);
  const u3 = v128.load(p, 48);
  const u4 = v128.load(p, 64);
  const u5 = v128.load(p, 80);
  const u6 = v128.load(p, 96);
  const u7 = v128.load(p, 112);
  const ones = onePairs();
  for (let t = 0; t < numTokens; t++, x += SIDE_BYTES, meta += META_BYTES, sums += 16) {
    let a = v128.load32_splat(meta, META_START_Q8);
    let b = i32x4.splat(0);
    a = dotFlipped<T>(v128.load32_splat(x), v128.load32_splat(x, 32), u0, a, ones);
    b = dotFlipped<T>(v128.load32_splat(x, 4), v128.load32_splat(x, 36), u1, b, ones);
    a = dotFlipped<T>(v128.load32_splat(x, 8), v128.load32_splat(x, 40), u2, a, ones);
    b = dotFlipped<T>(v128.load32_splat(x, 12), v128.load32_splat(x, 44), u3, b, ones);
    a = dotFlipped<T>(v128.load32_splat(x, 16), v128.load32_splat(x, 48), u4, a, ones);
    b = dotFlipped<T>(v128.load32_splat(x, 20), v128.load32_splat(x, 52), u5, b, ones);
    a = dotFlipped<T>(v128.load32_splat(x, 24), v128.load32_splat(x, 56), u6, a, ones);
    b = dotFlipped<T>(v128.load32_splat(x, 28), v128.load32_splat(x, 60), u7, b, ones);
    v128.store(
      sums,
      fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), f32x4.mul(scale, v128.load32_splat(meta)), v128.load(sums)),
    );
  }
}
