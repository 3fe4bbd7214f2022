/**
 * Products of one block of a group with many tokens, codes and metas of the tokens side by side. The eight vectors of codes
 * stay in registers. Two chains of dot products per token: one would wait for its own results. Relaxed builds only.
 */
import { halfFactor, halfMask } from '../simd/constants';
import { Q4_0, Q6_K, Q8_0 } from '../quant/dequantize';
import { addsPairs, dot, takesUnsigned } from './int8-dot';
import { flippedTokens } from './int8-dot-sign-magnitude';
import { halvedPairs, nibblePairs, offsetPairs } from './int8-dot-maddubs';
import { scales4 } from './int8-unpack';
import { META_START_Q8, META_SUM } from '../quant/quantize-activations';
import { fma } from '../simd/vector';

/** Adds to `sums[token][4]`; whole fours of tokens. `initial` is where metas have what sums of codes begin with. */
export function blockTimesTokens(
  dtype: i32,
  p: usize,
  x: usize,
  meta: usize,
  initial: usize,
  sums: usize,
  numTokens: i32,
): void {
  const scale = v128.load(p, 128);
  if (dtype === Q8_0 && !takesUnsigned()) flipped(p, scale, x, meta, sums, numTokens);
  else if (addsPairs()) byPairs(dtype, p, scale, x, meta, sums, numTokens);
  else if (dtype === Q8_0 || dtype === Q4_0) scaledTokens(p, scale, x, meta, meta + initial, sums, numTokens);
  else if (dtype === Q6_K) halvedTokens(p, scale, x, meta, meta + initial, sums, numTokens);
  else offsetTokens(p, scale, x, meta, meta + initial, sums, numTokens);
}

function byPairs(dtype: i32, p: usize, scale: v128, x: usize, meta: usize, sums: usize, numTokens: i32): void {
  if (dtype === Q4_0) nibblePairs(p, scale, x, meta, sums, numTokens);
  else if (dtype === Q6_K) halvedPairs(p, scale, x, meta, sums, numTokens);
  else offsetPairs(p, scale, x, meta, sums, numTokens);
}

/** The same for a packed block of q8_0, which needs no expanding. */
export function packedTimesTokens(block: usize, x: usize, meta: usize, sums: usize, numTokens: i32): void {
  const scale = scales4(block, halfMask(), halfFactor());
  if (takesUnsigned()) scaledTokens(block + 8, scale, x, meta, meta + META_START_Q8, sums, numTokens);
  else flipped(block + 8, scale, x, meta, sums, numTokens);
}

function flipped(p: usize, scale: v128, x: usize, meta: usize, sums: usize, numTokens: i32): void {
  if (addsPairs()) flippedTokens<i16>(p, scale, x, meta, sums, numTokens);
  else flippedTokens<i32>(p, scale, x, meta, sums, numTokens);
}

/** One scale per row. */
function scaledTokens(p: usize, scale: v128, x: usize, meta: usize, start: usize, sums: usize, numTokens: i32): void {
  const u0 = v128.load(p);
  const u1 = v128.load(p, 16);
  const u2 = v128.load(p, 32);
  const u3 = v128.load(p, 48);
  const u4 = v128.load(p, 64);
  const u5 = v128.load(p, 80);
  const u6 = v128.load(p, 96);
  const u7 = v128.load(p, 112);
  for (let t = 0; t < numTokens; t += 4) {
    let a = v128.load32_splat(start);
    let b = i32x4.splat(0);
    a = dot(v128.load32_splat(x), u0, a);
    b = dot(v128.load32_splat(x, 4), u1, b);
    a = dot(v128.load32_splat(x, 8), u2, a);
    b = dot(v128.load32_splat(x, 12), u3, b);
    a = dot(v128.load32_splat(x, 16), u4, a);
    b = dot(v128.load32_splat(x, 20), u5, b);
    a = dot(v128.load32_splat(x, 24), u6, a);
    b = dot(v128.load32_splat(x, 28), u7, b);
    v128.store(
      sums,
      fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), f32x4.mul(scale, v128.load32_splat(meta)), v128.load(sums)),
    );
    a = v128.load32_splat(start, 32);
    b = i32x4.splat(0);
    a = dot(v128.load32_splat(x, 32), u0, a);
    b = dot(v128.load32_splat(x, 36), u1, b);
    a = dot(v128.load32_splat(x, 40), u2, a);
    b = dot(v128.load32_splat(x, 44), u3, b);
    a = dot(v128.load32_splat(x, 48), u4, a);
    b = dot(v128.load32_splat(x, 52), u5, b);
    a = dot(v128.load32_splat(x, 56), u6, a);
    b = dot(v128.load32_splat(x, 60), u7, b);
    v128.store(
      sums,
      fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), f32x4.mul(scale, v128.load32_splat(meta, 32)), v128.load(sums, 16)),
      16,
    );
    a = v128.load32_splat(start, 64);
    b = i32x4.splat(0);
    a = dot(v128.load32_splat(x, 64), u0, a);
    b = dot(v128.load32_splat(x, 68), u1, b);
    a = dot(v128.load32_splat(x, 72), u2, a);
    b = dot(v128.load32_splat(x, 76), u3, b);
    a = dot(v128.load32_splat(x, 80), u4, a);
    b = dot(v128.load32_splat(x, 84), u5, b);
    a = dot(v128.load32_splat(x, 88), u6, a);
    b = dot(v128.load32_splat(x, 92), u7, b);
    v128.store(
      sums,
      fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), f32x4.mul(scale, v128.load32_splat(meta, 64)), v128.load(sums, 32)),
      32,
    );
    a = v128.load32_splat(start, 96);
    b = i32x4.splat(0);
    a = dot(v128.load32_splat(x, 96), u0, a);
    b = dot(v128.load32_splat(x, 100), u1, b);
    a = dot(v128.load32_splat(x, 104), u2, a);
    b = dot(v128.load32_splat(x, 108), u3, b);
    a = dot(v128.load32_splat(x, 112), u4, a);
    b = dot(v128.load32_splat(x, 116), u5, b);
    a = dot(v128.load32_splat(x, 120), u6, a);
    b = dot(v128.load32_splat(x, 124), u7, b);
    v128.store(
      sums,
      fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), f32x4.mul(scale, v128.load32_splat(meta, 96)), v128.load(sums, 48)),
      48,
    );
    x += 128;
    meta += 128;
    start += 128;
    sums += 64;
  }
}

/** A scale and an offset per row. */
function offsetTokens(p: usize, scale: v128, x: usize, meta: usize, start: usize, sums: usize, numTokens: i32): void {
  const u0 = v128.load(p);
  const u1 = v128.load(p, 16);
  const u2 = v128.load(p, 32);
  const u3 = v128.load(p, 48);
  const u4 = v128.load(p, 64);
  const u5 = v128.load(p, 80);
  const u6 = v128.load(p, 96);
  const u7 = v128.load(p, 112);
  const offset = v128.load(p, 144);
  for (let t = 0; t < numTokens; t += 4) {
    let a = v128.load32_splat(start);
    let b = i32x4.splat(0);
    a = dot(v128.load32_splat(x), u0, a);
    b = dot(v128.load32_splat(x, 4), u1, b);
    a = dot(v128.load32_splat(x, 8), u2, a);
    b = dot(v128.load32_splat(x, 12), u3, b);
    a = dot(v128.load32_splat(x, 16), u4, a);
    b = dot(v128.load32_splat(x, 20), u5, b);
    a = dot(v128.load32_splat(x, 24), u6, a);
    b = dot(v128.load32_splat(x, 28), u7, b);
    let s = fma(offset, v128.load32_splat(meta, META_SUM), v128.load(sums));
    v128.store(sums, fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), f32x4.mul(scale, v128.load32_splat(meta)), s));
    a = v128.load32_splat(start, 32);
    b = i32x4.splat(0);
    a = dot(v128.load32_splat(x, 32), u0, a);
    b = dot(v128.load32_splat(x, 36), u1, b);
    a = dot(v128.load32_splat(x, 40), u2, a);
    b = dot(v128.load32_splat(x, 44), u3, b);
    a = dot(v128.load32_splat(x, 48), u4, a);
    b = dot(v128.load32_splat(x, 52), u5, b);
    a = dot(v128.load32_splat(x, 56), u6, a);
    b = dot(v128.load32_splat(x, 60), u7, b);
    s = fma(offset, v128.load32_splat(meta, 32 + META_SUM), v128.load(sums, 16));
    v128.store(sums, fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), f32x4.mul(scale, v128.load32_splat(meta, 32)), s), 16);
    a = v128.load32_splat(start, 64);
    b = i32x4.splat(0);
    a = dot(v128.load32_splat(x, 64), u0, a);
    b = dot(v128.load32_splat(x, 68), u1, b);
    a = dot(v128.load32_splat(x, 72), u2, a);
    b = dot(v128.load32_splat(x, 76), u3, b);
    a = dot(v128.load32_splat(x, 80), u4, a);
    b = dot(v128.load32_splat(x, 84), u5, b);
    a = dot(v128.load32_splat(x, 88), u6, a);
    b = dot(v128.load32_splat(x, 92), u7, b);
    s = fma(offset, v128.load32_splat(meta, 64 + META_SUM), v128.load(sums, 32));
    v128.store(sums, fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), f32x4.mul(scale, v128.load32_splat(meta, 64)), s), 32);
    a = v128.load32_splat(start, 96);
    b = i32x4.splat(0);
    a = dot(v128.load32_splat(x, 96), u0, a);
    b = dot(v128.load32_splat(x, 100), u1, b);
    a = dot(v128.load32_splat(x, 104), u2, a);
    b = dot(v128.load32_splat(x, 108), u3, b);
    a = dot(v128.load32_splat(x, 112), u4, a);
    b = dot(v128.load32_splat(x, 116), u5, b);
    a = dot(v128.load32_splat(x, 120), u6, a);
    b = dot(v128.load32_splat(x, 124), u7, b);
    s = fma(offset, v128.load32_splat(meta, 96 + META_SUM), v128.load(sums, 48));
    v128.store(sums, fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), f32x4.mul(scale, v128.load32_splat(meta, 96)), s), 48);
    x += 128;
    meta += 128;
    start += 128;
    sums += 64;
  }
}

/** Two scales per row, each for half of the columns. */
function halvedTokens(p: usize, scale: v128, x: usize, meta: usize, start: usize, sums: usize, numTokens: i32): void {
  const u0 = v128.load(p);
  const u1 = v128.load(p, 16);
  const u2 = v128.load(p, 32);
  const u3 = v128.load(p, 48);
  const u4 = v128.load(p, 64);
  const u5 = v128.load(p, 80);
  const u6 = v128.load(p, 96);
  const u7 = v128.load(p, 112);
  const other = v128.load(p, 144);
  for (let t = 0; t < numTokens; t += 4) {
    let a = v128.load32_splat(start);
    let b = v128.load32_splat(start, 4);
    a = dot(v128.load32_splat(x), u0, a);
    a = dot(v128.load32_splat(x, 4), u1, a);
    a = dot(v128.load32_splat(x, 8), u2, a);
    a = dot(v128.load32_splat(x, 12), u3, a);
    b = dot(v128.load32_splat(x, 16), u4, b);
    b = dot(v128.load32_splat(x, 20), u5, b);
    b = dot(v128.load32_splat(x, 24), u6, b);
    b = dot(v128.load32_splat(x, 28), u7, b);
    let d = v128.load32_splat(meta);
    let s = fma(f32x4.convert_i32x4_s(a), f32x4.mul(scale, d), v128.load(sums));
    v128.store(sums, fma(f32x4.convert_i32x4_s(b), f32x4.mul(other, d), s));
    a = v128.load32_splat(start, 32);
    b = v128.load32_splat(start, 36);
    a = dot(v128.load32_splat(x, 32), u0, a);
    a = dot(v128.load32_splat(x, 36), u1, a);
    a = dot(v128.load32_splat(x, 40), u2, a);
    a = dot(v128.load32_splat(x, 44), u3, a);
    b = dot(v128.load32_splat(x, 48), u4, b);
    b = dot(v128.load32_splat(x, 52), u5, b);
    b = dot(v128.load32_splat(x, 56), u6, b);
    b = dot(v128.load32_splat(x, 60), u7, b);
    d = v128.load32_splat(meta, 32);
    s = fma(f32x4.convert_i32x4_s(a), f32x4.mul(scale, d), v128.load(sums, 16));
    v128.store(sums, fma(f32x4.convert_i32x4_s(b), f32x4.mul(other, d), s), 16);
    a = v128.load32_splat(start, 64);
    b = v128.load32_splat(start, 68);
    a = dot(v128.load32_splat(x, 64), u0, a);
    a = dot(v128.load32_splat(x, 68), u1, a);
    a = dot(v128.load32_splat(x, 72), u2, a);
    a = dot(v128.load32_splat(x, 76), u3, a);
    b = dot(v128.load32_splat(x, 80), u4, b);
    b = dot(v128.load32_splat(x, 84), u5, b);
    b = dot(v128.load32_splat(x, 88), u6, b);
    b = dot(v128.load32_splat(x, 92), u7, b);
    d = v128.load32_splat(meta, 64);
    s = fma(f32x4.convert_i32x4_s(a), f32x4.mul(scale, d), v128.load(sums, 32));
    v128.store(sums, fma(f32x4.convert_i32x4_s(b), f32x4.mul(other, d), s), 32);
    a = v128.load32_splat(start, 96);
    b = v128.load32_splat(start, 100);
    a = dot(v128.load32_splat(x, 96), u0, a);
    a = dot(v128.load32_splat(x, 100), u1, a);
    a = dot(v128.load32_splat(x, 104), u2, a);
    a = dot(v128.load32_splat(x, 108), u3, a);
    b = dot(v128.load32_splat(x, 112), u4, b);
    b = dot(v128.load32_splat(x, 116), u5, b);
    b = dot(v128.load32_splat(x, 120), u6, b);
    b = dot(v128.load32_splat(x, 124), u7, b);
    d = v128.load32_splat(meta, 96);
    s = fma(f32x4.convert_i32x4_s(a), f32x4.mul(scale, d), v128.load(sums, 48));
    v128.store(sums, fma(f32x4.convert_i32x4_s(b), f32x4.mul(other, d), s), 48);
    x += 128;
    meta += 128;
    start += 128;
    sums += 64;
  }
}
