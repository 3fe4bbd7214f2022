/**
 * Products of one block of a group with many tokens, by pairs: for machines whose dot products are made of sums of two products, of 16 bits, which
 * saturate. Where codes are small, sums of several pairs still fit. The numbers of int8-gemm.ts, bit by bit. Relaxed builds only.
 */
import { onePairs } from '../simd/constants';
import { addPairs, pairs } from './int8-dot';
import { META_BYTES, META_MINUS_32, META_MINUS_8, META_SUM } from '../quant/quantize-activations';
import { fma } from '../simd/vector';

/** One scale per row, codes of four bits: `16 * 15 * 127 < 2^15`. */
export function nibblePairs(p: usize, scale: v128, x: usize, meta: usize, sums: usize, numTokens: i32): void {
  const ones = onePairs();
  const u0 = v128.load(p);
  const u1 = v128.load(p, 16);
  const u2 = v128.load(p, 32);
  const u3 = v128.load(p, 48);
  const u4 = v128.load(p, 64);
  const u5 = v128.load(p, 80);
  const u6 = v128.load(p, 96);
  const u7 = v128.load(p, 112);
  for (let t = 0; t < numTokens; t++, x += 32, meta += META_BYTES, sums += 16) {
    let a = pairs(v128.load32_splat(x), u0);
    let b = pairs(v128.load32_splat(x, 4), u1);
    a = i16x8.add(a, pairs(v128.load32_splat(x, 8), u2));
    b = i16x8.add(b, pairs(v128.load32_splat(x, 12), u3));
    a = i16x8.add(a, pairs(v128.load32_splat(x, 16), u4));
    b = i16x8.add(b, pairs(v128.load32_splat(x, 20), u5));
    a = i16x8.add(a, pairs(v128.load32_splat(x, 24), u6));
    b = i16x8.add(b, pairs(v128.load32_splat(x, 28), u7));
    const blocks = addPairs(v128.load32_splat(meta, META_MINUS_8), i16x8.add(a, b), ones);
    v128.store(sums, fma(f32x4.convert_i32x4_s(blocks), f32x4.mul(scale, v128.load32_splat(meta)), v128.load(sums)));
  }
}

/** A scale and an offset per row, codes of five bits: `8 * 31 * 127 < 2^15`. */
export function offsetPairs(p: usize, scale: v128, x: usize, meta: usize, sums: usize, numTokens: i32): void {
  const ones = onePairs();
  const u0 = v128.load(p);
  const u1 = v128.load(p, 16);
  const u2 = v128.load(p, 32);
  const u3 = v128.load(p, 48);
  const u4 = v128.load(p, 64);
  const u5 = v128.load(p, 80);
  const u6 = v128.load(p, 96);
  const u7 = v128.load(p, 112);
  const offset = v128.load(p, 144);
  for (let t = 0; t < numTokens; t++, x += 32, meta += META_BYTES, sums += 16) {
    let a = pairs(v128.load32_splat(x), u0);
    let b = pairs(v128.load32_splat(x, 4), u1);
    a = i16x8.add(a, pairs(v128.load32_splat(x, 8), u2));
    b = i16x8.add(b, pairs(v128.load32_splat(x, 12), u3));
    a = i16x8.add(a, pairs(v128.load32_splat(x, 16), u4));
    b = i16x8.add(b, pairs(v128.load32_splat(x, 20), u5));
    a = i16x8.add(a, pairs(v128.load32_splat(x, 24), u6));
    b = i16x8.add(b, pairs(v128.load32_splat(x, 28), u7));
    const blocks = addPairs(addPairs(i32x4.splat(0), a, ones), b, ones);
    const s = fma(offset, v128.load32_splat(meta, META_SUM), v128.load(sums));
    v128.store(sums, fma(f32x4.convert_i32x4_s(blocks), f32x4.mul(scale, v128.load32_splat(meta)), s));
  }
}

/** A scale for each half of the columns, codes of six bits: `4 * 63 * 127 < 2^15`. */
export function halvedPairs(p: usize, scale: v128, x: usize, meta: usize, sums: usize, numTokens: i32): void {
  const ones = onePairs();
  const u0 = v128.load(p);
  const u1 = v128.load(p, 16);
  const u2 = v128.load(p, 32);
  const u3 = v128.load(p, 48);
  const u4 = v128.load(p, 64);
  const u5 = v128.load(p, 80);
  const u6 = v128.load(p, 96);
  const u7 = v128.load(p, 112);
  const other = v128.load(p, 144);
  for (let t = 0; t < numTokens; t++, x += 32, meta += META_BYTES, sums += 16) {
    let a = v128.load32_splat(meta, META_MINUS_32);
    let b = v128.load32_splat(meta, META_MINUS_32 + 4);
    a = addPairs(a, i16x8.add(pairs(v128.load32_splat(x), u0), pairs(v128.load32_splat(x, 4), u1)), ones);
    a = addPairs(a, i16x8.add(pairs(v128.load32_splat(x, 8), u2), pairs(v128.load32_splat(x, 12), u3)), ones);
    b = addPairs(b, i16x8.add(pairs(v128.load32_splat(x, 16), u4), pairs(v128.load32_splat(x, 20), u5)), ones);
    b = addPairs(b, i16x8.add(pairs(v128.load32_splat(x, 24), u6), pairs(v128.load32_splat(x, 28), u7)), ones);
    const d = v128.load32_splat(meta);
    const s = fma(f32x4.convert_i32x4_s(a), f32x4.mul(scale, d), v128.load(sums));
    v128.store(sums, fma(f32x4.convert_i32x4_s(b), f32x4.mul(other, d), s));
  }
}
