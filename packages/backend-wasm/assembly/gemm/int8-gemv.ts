/**
 * One token and packed groups without expanding them first: what decoding spends its time on. Some groups are walked side
 * by side: one stream of weights alone leaves much of the memory's speed unused. Codes of activations are in the form that
 * `codesFor` finds. Relaxed builds only.
 */
import { halfFactor, halfMask, nibbleMask, onePairs } from '../simd/constants';
import { Q4_0, Q4_K, Q5_K, Q8_0 } from '../quant/dequantize';
import { addPairs, addsPairs, dot, pairs, takesUnsigned } from './int8-dot';
import { blockQ4K, blockQ5K, blockQ6K, high } from './int8-dot-k-quants';
import { flippedDots, flippedDotsSideBySide } from './int8-dot-sign-magnitude';
import { scales4 } from './int8-unpack';
import { META_BYTES, META_MINUS_8, META_START_Q8 } from '../quant/quantize-activations';
import { fma } from '../simd/vector';

/** Groups that are computed together. */
export function streamsOf(dtype: i32): i32 {
  return dtype === Q8_0 || dtype === Q4_0 ? 8 : 4;
}

/** The sums of the four rows of one group. */
export function packedDots(dtype: i32, group: usize, numInputs: i32, x: usize, meta: usize): v128 {
  if (dtype === Q8_0) {
    if (takesUnsigned()) return oneQ8(group, numInputs >> 5, x, meta);
    if (addsPairs()) return flippedDots<i16>(group, numInputs >> 5, x, meta);
    return flippedDots<i32>(group, numInputs >> 5, x, meta);
  }
  if (dtype === Q4_0) {
    return addsPairs() ? oneQ4<i16>(group, numInputs >> 5, x, meta) : oneQ4<i32>(group, numInputs >> 5, x, meta);
  }
  return addsPairs() ? oneK<i16>(dtype, group, numInputs, x, meta) : oneK<i32>(dtype, group, numInputs, x, meta);
}

/** The sums of as many groups as `streamsOf` says, `stride` bytes from one to the next, as `to[streams][4]`. */
export function packedDotsSideBySide(
  dtype: i32,
  group: usize,
  stride: usize,
  numInputs: i32,
  x: usize,
  meta: usize,
  to: usize,
): void {
  if (dtype === Q8_0) {
    if (takesUnsigned()) dotsQ8(group, stride, numInputs >> 5, x, meta, to);
    else if (addsPairs()) flippedDotsSideBySide<i16>(group, stride, numInputs >> 5, x, meta, to);
    else flippedDotsSideBySide<i32>(group, stride, numInputs >> 5, x, meta, to);
    return;
  }
  if (dtype === Q4_0) {
    if (addsPairs()) dotsQ4<i16>(group, stride, numInputs >> 5, x, meta, to);
    else dotsQ4<i32>(group, stride, numInputs >> 5, x, meta, to);
    return;
  }
  if (addsPairs()) dotsK<i16>(dtype, group, stride, numInputs, x, meta, to);
  else dotsK<i32>(dtype, group, stride, numInputs, x, meta, to);
}

/** K-quants, by pairs where T is i16: one group. */
function oneK<T>(dtype: i32, group: usize, numInputs: i32, x: usize, meta: usize): v128 {
  const blockBytes = superBytes(dtype);
  let sums = f32x4.splat(0);
  for (let i = numInputs >> 8; i > 0; i--, group += blockBytes, x += 256, meta += 8 * META_BYTES) {
    sums = blockOf<T>(dtype, group, x, meta, sums);
  }
  return sums;
}

/** Four groups. */
function dotsK<T>(dtype: i32, group: usize, stride: usize, numInputs: i32, x: usize, meta: usize, to: usize): void {
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  const blockBytes = superBytes(dtype);
  for (let i = numInputs >> 8; i > 0; i--, group += blockBytes, x += 256, meta += 8 * META_BYTES) {
    let at = group;
    a = blockOf<T>(dtype, at, x, meta, a);
    at += stride;
    b = blockOf<T>(dtype, at, x, meta, b);
    at += stride;
    c = blockOf<T>(dtype, at, x, meta, c);
    at += stride;
    d = blockOf<T>(dtype, at, x, meta, d);
  }
  v128.store(to, a);
  v128.store(to, b, 16);
  v128.store(to, c, 32);
  v128.store(to, d, 48);
}

/** Bytes of a super-block of four rows. */
function superBytes(dtype: i32): usize {
  return dtype === Q4_K ? 576 : dtype === Q5_K ? 704 : 840;
}

function blockOf<T>(dtype: i32, at: usize, x: usize, meta: usize, sums: v128): v128 {
  if (dtype === Q4_K) return blockQ4K<T>(at, x, meta, sums);
  if (dtype === Q5_K) return blockQ5K<T>(at, x, meta, sums);
  return blockQ6K<T>(at, x, meta, sums);
}

/** Adds the products of one block of four rows. */
// @inline
function blockQ8(
  at: usize,
  u0: v128,
  u1: v128,
  u2: v128,
  u3: v128,
  u4: v128,
  u5: v128,
  u6: v128,
  u7: v128,
  initial: v128,
  scale: v128,
  sums: v128,
): v128 {
  let a = dot(u0, v128.load(at, 8), initial);
  a = dot(u1, v128.load(at, 24), a);
  a = dot(u2, v128.load(at, 40), a);
  a = dot(u3, v128.load(at, 56), a);
  a = dot(u4, v128.load(at, 72), a);
  a = dot(u5, v128.load(at, 88), a);
  a = dot(u6, v128.load(at, 104), a);
  a = dot(u7, v128.load(at, 120), a);
  return fma(f32x4.convert_i32x4_s(a), scale, sums);
}

/** Eight groups: what the activations cost is shared, and the memory is read at the rate of plain loads. */
function dotsQ8(p: usize, stride: usize, numBlocks: i32, x: usize, meta: usize, to: usize): void {
  const mask = halfMask();
  const factor = halfFactor();
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let s4 = s0;
  let s5 = s0;
  let s6 = s0;
  let s7 = s0;
  for (let block = 0; block < numBlocks; block++, p += 136, x += 32, meta += META_BYTES) {
    const u0 = v128.load32_splat(x);
    const u1 = v128.load32_splat(x, 4);
    const u2 = v128.load32_splat(x, 8);
    const u3 = v128.load32_splat(x, 12);
    const u4 = v128.load32_splat(x, 16);
    const u5 = v128.load32_splat(x, 20);
    const u6 = v128.load32_splat(x, 24);
    const u7 = v128.load32_splat(x, 28);
    const initial = v128.load32_splat(meta, META_START_Q8);
    const d = v128.load32_splat(meta);
    let q = p;
    s0 = blockQ8(q, u0, u1, u2, u3, u4, u5, u6, u7, initial, f32x4.mul(scales4(q, mask, factor), d), s0);
    q += stride;
    s1 = blockQ8(q, u0, u1, u2, u3, u4, u5, u6, u7, initial, f32x4.mul(scales4(q, mask, factor), d), s1);
    q += stride;
    s2 = blockQ8(q, u0, u1, u2, u3, u4, u5, u6, u7, initial, f32x4.mul(scales4(q, mask, factor), d), s2);
    q += stride;
    s3 = blockQ8(q, u0, u1, u2, u3, u4, u5, u6, u7, initial, f32x4.mul(scales4(q, mask, factor), d), s3);
    q += stride;
    s4 = blockQ8(q, u0, u1, u2, u3, u4, u5, u6, u7, initial, f32x4.mul(scales4(q, mask, factor), d), s4);
    q += stride;
    s5 = blockQ8(q, u0, u1, u2, u3, u4, u5, u6, u7, initial, f32x4.mul(scales4(q, mask, factor), d), s5);
    q += stride;
    s6 = blockQ8(q, u0, u1, u2, u3, u4, u5, u6, u7, initial, f32x4.mul(scales4(q, mask, factor), d), s6);
    q += stride;
    s7 = blockQ8(q, u0, u1, u2, u3, u4, u5, u6, u7, initial, f32x4.mul(scales4(q, mask, factor), d), s7);
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

/** Adds the products of two vectors of nibbles: columns t and u with the low ones, v and w with the high ones. */
function dotNibbles<T>(
  at: v128,
  next: v128,
  t: v128,
  u: v128,
  v: v128,
  w: v128,
  low: v128,
  sum: v128,
  ones: v128,
): v128 {
  if (sizeof<T>() === 2) {
    const first = i16x8.add(pairs(t, v128.and(at, low)), pairs(v, high(at, low)));
    const second = i16x8.add(pairs(u, v128.and(next, low)), pairs(w, high(next, low)));
    return addPairs(sum, i16x8.add(first, second), ones);
  }
  sum = dot(v, high(at, low), dot(t, v128.and(at, low), sum));
  return dot(w, high(next, low), dot(u, v128.and(next, low), sum));
}

/** Adds the products of one block of four rows. */
// @inline
function blockQ4<T>(
  at: usize,
  u0: v128,
  u1: v128,
  u2: v128,
  u3: v128,
  v0: v128,
  v1: v128,
  v2: v128,
  v3: v128,
  low: v128,
  ones: v128,
  initial: v128,
  scale: v128,
  sums: v128,
): v128 {
  let a = dotNibbles<T>(v128.load(at, 8), v128.load(at, 24), u0, u1, v0, v1, low, initial, ones);
  a = dotNibbles<T>(v128.load(at, 40), v128.load(at, 56), u2, u3, v2, v3, low, a, ones);
  return fma(f32x4.convert_i32x4_s(a), scale, sums);
}

/** As `dotsQ8`. */
function dotsQ4<T>(p: usize, stride: usize, numBlocks: i32, x: usize, meta: usize, to: usize): void {
  const mask = halfMask();
  const factor = halfFactor();
  const low = nibbleMask();
  const ones = onePairs();
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let s4 = s0;
  let s5 = s0;
  let s6 = s0;
  let s7 = s0;
  for (let block = 0; block < numBlocks; block++, p += 72, x += 32, meta += META_BYTES) {
    const u0 = v128.load32_splat(x);
    const u1 = v128.load32_splat(x, 4);
    const u2 = v128.load32_splat(x, 8);
    const u3 = v128.load32_splat(x, 12);
    const v0 = v128.load32_splat(x, 16);
    const v1 = v128.load32_splat(x, 20);
    const v2 = v128.load32_splat(x, 24);
    const v3 = v128.load32_splat(x, 28);
    const initial = v128.load32_splat(meta, META_MINUS_8);
    const d = v128.load32_splat(meta);
    let q = p;
    s0 = blockQ4<T>(q, u0, u1, u2, u3, v0, v1, v2, v3, low, ones, initial, f32x4.mul(scales4(q, mask, factor), d), s0);
    q += stride;
    s1 = blockQ4<T>(q, u0, u1, u2, u3, v0, v1, v2, v3, low, ones, initial, f32x4.mul(scales4(q, mask, factor), d), s1);
    q += stride;
    s2 = blockQ4<T>(q, u0, u1, u2, u3, v0, v1, v2, v3, low, ones, initial, f32x4.mul(scales4(q, mask, factor), d), s2);
    q += stride;
    s3 = blockQ4<T>(q, u0, u1, u2, u3, v0, v1, v2, v3, low, ones, initial, f32x4.mul(scales4(q, mask, factor), d), s3);
    q += stride;
    s4 = blockQ4<T>(q, u0, u1, u2, u3, v0, v1, v2, v3, low, ones, initial, f32x4.mul(scales4(q, mask, factor), d), s4);
    q += stride;
    s5 = blockQ4<T>(q, u0, u1, u2, u3, v0, v1, v2, v3, low, ones, initial, f32x4.mul(scales4(q, mask, factor), d), s5);
    q += stride;
    s6 = blockQ4<T>(q, u0, u1, u2, u3, v0, v1, v2, v3, low, ones, initial, f32x4.mul(scales4(q, mask, factor), d), s6);
    q += stride;
    s7 = blockQ4<T>(q, u0, u1, u2, u3, v0, v1, v2, v3, low, ones, initial, f32x4.mul(scales4(q, mask, factor), d), s7);
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

function oneQ8(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  const mask = halfMask();
  const factor = halfFactor();
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++, at += 136, x += 32, meta += META_BYTES) {
    let a = v128.load32_splat(meta, META_START_Q8);
    let b = i32x4.splat(0);
    a = dot(v128.load32_splat(x), v128.load(at, 8), a);
    b = dot(v128.load32_splat(x, 4), v128.load(at, 24), b);
    a = dot(v128.load32_splat(x, 8), v128.load(at, 40), a);
    b = dot(v128.load32_splat(x, 12), v128.load(at, 56), b);
    a = dot(v128.load32_splat(x, 16), v128.load(at, 72), a);
    b = dot(v128.load32_splat(x, 20), v128.load(at, 88), b);
    a = dot(v128.load32_splat(x, 24), v128.load(at, 104), a);
    b = dot(v128.load32_splat(x, 28), v128.load(at, 120), b);
    const scale = f32x4.mul(scales4(at, mask, factor), v128.load32_splat(meta));
    sums = fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), scale, sums);
  }
  return sums;
}

function oneQ4<T>(at: usize, numBlocks: i32, x: usize, meta: usize): v128 {
  const mask = halfMask();
  const factor = halfFactor();
  const low = nibbleMask();
  const ones = onePairs();
  let sums = f32x4.splat(0);
  for (let block = 0; block < numBlocks; block++, at += 72, x += 32, meta += META_BYTES) {
    let a = v128.load32_splat(meta, META_MINUS_8);
    let b = i32x4.splat(0);
    const u0 = v128.load32_splat(x);
    const u1 = v128.load32_splat(x, 4);
    const u2 = v128.load32_splat(x, 8);
    const u3 = v128.load32_splat(x, 12);
    a = dotNibbles<T>(
      v128.load(at, 8),
      v128.load(at, 24),
      u0,
      u1,
      v128.load32_splat(x, 16),
      v128.load32_splat(x, 20),
      low,
      a,
      ones,
    );
    b = dotNibbles<T>(
      v128.load(at, 40),
      v128.load(at, 56),
      u2,
      u3,
      v128.load32_splat(x, 24),
      v128.load32_splat(x, 28),
      low,
      b,
      ones,
    );
    const scale = f32x4.mul(scales4(at, mask, factor), v128.load32_splat(meta));
    sums = fma(f32x4.convert_i32x4_s(i32x4.add(a, b)), scale, sums);
  }
  return sums;
}
