/** Super-blocks of packed k-quants times 8-bit activations: 256 columns of four rows, by pairs where T is i16. Relaxed builds only. */
import { byteMask, halfFactor, halfMask, nibbleMask, onePairs, pairMask } from '../simd/constants';
import { addPairs, dot, dotTwo, pairs } from './int8-dot';
import { scales4 } from './int8-unpack';
import { META_BYTES, META_MINUS_32, META_SUM } from '../quant/quantize-activations';
import { fma } from '../simd/vector';

/** High nibbles of bytes. */
export function high(v: v128, mask: v128): v128 {
  return v128.and(i16x8.shr_u(v, 4), mask);
}

/** Adds products of codes of five bits at most: to sums of pairs where T is i16, of four such vectors, `8 * 31 * 127 < 2^15`. */
// @inline
function step<T>(x: v128, codes: v128, sum: v128): v128 {
  return sizeof<T>() === 2 ? i16x8.add(sum, pairs(x, codes)) : dot(x, codes, sum);
}

/** The sums of two such chains. */
// @inline
function joined<T>(a: v128, b: v128, ones: v128): v128 {
  return sizeof<T>() === 2 ? addPairs(addPairs(i32x4.splat(0), a, ones), b, ones) : i32x4.add(a, b);
}

/**
 * Four rows of a super-block of q4_K. What is multiplied by d and by dmin is summed over the sub-blocks first.
 */
export function blockQ4K<T>(at: usize, x: usize, meta: usize, sums: v128): v128 {
  const low = nibbleMask();
  const byte = byteMask();
  const ones = onePairs();
  let scaled = f32x4.splat(0);
  let codes = at + 64;
  let y = meta;
  for (let pair = 0; pair < 4; pair++) {
    // two chains of products per sub-block: one would wait for its own results
    let a = i32x4.splat(0);
    let b = a;
    let c = a;
    let d = a;
    let v = v128.load(codes);
    a = step<T>(v128.load32_splat(x), v128.and(v, low), a);
    b = step<T>(v128.load32_splat(x, 32), high(v, low), b);
    v = v128.load(codes, 16);
    c = step<T>(v128.load32_splat(x, 4), v128.and(v, low), c);
    d = step<T>(v128.load32_splat(x, 36), high(v, low), d);
    v = v128.load(codes, 32);
    a = step<T>(v128.load32_splat(x, 8), v128.and(v, low), a);
    b = step<T>(v128.load32_splat(x, 40), high(v, low), b);
    v = v128.load(codes, 48);
    c = step<T>(v128.load32_splat(x, 12), v128.and(v, low), c);
    d = step<T>(v128.load32_splat(x, 44), high(v, low), d);
    v = v128.load(codes, 64);
    a = step<T>(v128.load32_splat(x, 16), v128.and(v, low), a);
    b = step<T>(v128.load32_splat(x, 48), high(v, low), b);
    v = v128.load(codes, 80);
    c = step<T>(v128.load32_splat(x, 20), v128.and(v, low), c);
    d = step<T>(v128.load32_splat(x, 52), high(v, low), d);
    v = v128.load(codes, 96);
    a = step<T>(v128.load32_splat(x, 24), v128.and(v, low), a);
    b = step<T>(v128.load32_splat(x, 56), high(v, low), b);
    v = v128.load(codes, 112);
    c = step<T>(v128.load32_splat(x, 28), v128.and(v, low), c);
    d = step<T>(v128.load32_splat(x, 60), high(v, low), d);
    scaled = addPair(
      joined<T>(a, c, ones),
      joined<T>(b, d, ones),
      i32x4.shr_u(scalesK(at + 16, pair >= 2, low), (pair & 1) << 4),
      byte,
      y,
      scaled,
    );
    codes += 128;
    x += 64;
    y += 2 * META_BYTES;
  }
  return finishK(at, scaled, meta, low, byte, sums);
}

/** Adds the sums of two sub-blocks times their scales, the low bytes of each lane. */
function addPair(a: v128, b: v128, scales: v128, byte: v128, meta: usize, scaled: v128): v128 {
  const first = f32x4.mul(lowByte(scales, byte), v128.load32_splat(meta));
  const second = f32x4.mul(lowByte(i32x4.shr_u(scales, 8), byte), v128.load32_splat(meta, META_BYTES));
  scaled = fma(f32x4.convert_i32x4_s(a), first, scaled);
  return fma(f32x4.convert_i32x4_s(b), second, scaled);
}

/** The low byte of every lane as a float. */
function lowByte(v: v128, byte: v128): v128 {
  return f32x4.convert_i32x4_s(v128.and(v, byte));
}

/** Six-bit scales of four rows, sub-blocks 0..3 or 4..7 as the bytes of each lane. */
function scalesK(at: usize, isHigh: bool, low: v128): v128 {
  const first = v128.load(at);
  if (!isHigh) return v128.and(first, v128.or(low, pairMask()));
  return v128.or(v128.and(v128.load(at, 32), low), v128.and(i32x4.shr_u(first, 2), pairMask()));
}
function minsK(at: usize, isHigh: bool, low: v128): v128 {
  const first = v128.load(at, 16);
  if (!isHigh) return v128.and(first, v128.or(low, pairMask()));
  return v128.or(v128.and(i32x4.shr_u(v128.load(at, 32), 4), low), v128.and(i32x4.shr_u(first, 2), pairMask()));
}

/** Adds a super-block of q4_K or q5_K to the sums: its products, and its mins times the sums of activations. */
function finishK(at: usize, scaled: v128, meta: usize, low: v128, byte: v128, sums: v128): v128 {
  let offset = f32x4.splat(0);
  for (let half = 0; half < 2; half++) {
    const mins = minsK(at + 16, half !== 0, low);
    offset = fma(lowByte(mins, byte), v128.load32_splat(meta, META_SUM), offset);
    offset = fma(lowByte(i32x4.shr_u(mins, 8), byte), v128.load32_splat(meta, META_BYTES + META_SUM), offset);
    offset = fma(lowByte(i32x4.shr_u(mins, 16), byte), v128.load32_splat(meta, 2 * META_BYTES + META_SUM), offset);
    offset = fma(lowByte(i32x4.shr_u(mins, 24), byte), v128.load32_splat(meta, 3 * META_BYTES + META_SUM), offset);
    meta += 4 * META_BYTES;
  }
  const mask = halfMask();
  const factor = halfFactor();
  sums = fma(scales4(at, mask, factor), scaled, sums);
  return fma(f32x4.neg(scales4(at + 8, mask, factor)), offset, sums);
}

export function blockQ5K<T>(at: usize, x: usize, meta: usize, sums: v128): v128 {
  const low = nibbleMask();
  const byte = byteMask();
  const scales = scalesK(at + 16, false, low);
  let scaled = pairQ5K<T>(0, at, x, scales, byte, meta, f32x4.splat(0));
  scaled = pairQ5K<T>(2, at, x, i32x4.shr_u(scales, 16), byte, meta, scaled);
  const others = scalesK(at + 16, true, low);
  scaled = pairQ5K<T>(4, at, x, others, byte, meta, scaled);
  scaled = pairQ5K<T>(6, at, x, i32x4.shr_u(others, 16), byte, meta, scaled);
  return finishK(at, scaled, meta, low, byte, sums);
}

/** Sub-blocks `sub` and `sub + 1`; a copy for each, so that shifts are constants. */
// @inline
function pairQ5K<T>(sub: i32, at: usize, x: usize, scales: v128, byte: v128, meta: usize, scaled: v128): v128 {
  const low = nibbleMask();
  const ones = onePairs();
  const sixteen = v128.and(pairMask(), i32x4.splat(0x10101010));
  let a = i32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  let y = x + ((<usize>sub) << 5);
  let codes = at + 192 + ((<usize>sub) << 6);
  let fifths = at + 64;
  for (let j = 0; j < 4; j++) {
    let v = v128.load(codes);
    let bits = v128.load(fifths);
    a = step<T>(v128.load32_splat(y), v128.or(v128.and(v, low), fifthBit(bits, sub, sixteen)), a);
    b = step<T>(v128.load32_splat(y, 32), v128.or(high(v, low), fifthBit(bits, sub + 1, sixteen)), b);
    v = v128.load(codes, 16);
    bits = v128.load(fifths, 16);
    c = step<T>(v128.load32_splat(y, 4), v128.or(v128.and(v, low), fifthBit(bits, sub, sixteen)), c);
    d = step<T>(v128.load32_splat(y, 36), v128.or(high(v, low), fifthBit(bits, sub + 1, sixteen)), d);
    codes += 32;
    fifths += 32;
    y += 8;
  }
  return addPair(joined<T>(a, c, ones), joined<T>(b, d, ones), scales, byte, meta + <usize>sub * META_BYTES, scaled);
}

/** The bit of sub-block `sub` of every byte, as 0 or 16. */
// @inline
function fifthBit(bits: v128, sub: i32, sixteen: v128): v128 {
  return v128.and(sub < 4 ? i16x8.shl(bits, 4 - sub) : i16x8.shr_u(bits, sub - 4), sixteen);
}

/** q6_K: per half, quarters 0 and 2 share one run of nibbles, 1 and 3 the other; all four share the bit pairs. */
export function blockQ6K<T>(at: usize, x: usize, meta: usize, sums: v128): v128 {
  const low = nibbleMask();
  const pair = pairMask();
  const ones = onePairs();
  let scaled = f32x4.splat(0);
  for (let half: usize = 0; half < 2; half++) {
    for (let part: usize = 0; part < 2; part++) {
      const at4 = meta + (part << 2);
      let a = v128.load32_splat(at4, META_MINUS_32);
      let b = v128.load32_splat(at4, META_BYTES + META_MINUS_32);
      let c = v128.load32_splat(at4, 2 * META_BYTES + META_MINUS_32);
      let d = v128.load32_splat(at4, 3 * META_BYTES + META_MINUS_32);
      const codes = at + 72 + (half << 8) + (part << 6);
      const twos = at + 584 + (half << 7) + (part << 6);
      const y = x + (part << 4);
      let u = v128.load(codes);
      let v = v128.load(codes, 128);
      let bits = v128.load(twos);
      let w = v128.load(codes, 16);
      let z = v128.load(codes, 144);
      let others = v128.load(twos, 16);
      a = dotTwo<T>(
        v128.load32_splat(y),
        v128.or(v128.and(u, low), v128.and(i16x8.shl(bits, 4), pair)),
        v128.load32_splat(y, 4),
        v128.or(v128.and(w, low), v128.and(i16x8.shl(others, 4), pair)),
        a,
        ones,
      );
      b = dotTwo<T>(
        v128.load32_splat(y, 32),
        v128.or(v128.and(v, low), v128.and(i16x8.shl(bits, 2), pair)),
        v128.load32_splat(y, 36),
        v128.or(v128.and(z, low), v128.and(i16x8.shl(others, 2), pair)),
        b,
        ones,
      );
      c = dotTwo<T>(
        v128.load32_splat(y, 64),
        v128.or(high(u, low), v128.and(bits, pair)),
        v128.load32_splat(y, 68),
        v128.or(high(w, low), v128.and(others, pair)),
        c,
        ones,
      );
      d = dotTwo<T>(
        v128.load32_splat(y, 96),
        v128.or(high(v, low), v128.and(i16x8.shr_u(bits, 2), pair)),
        v128.load32_splat(y, 100),
        v128.or(high(z, low), v128.and(i16x8.shr_u(others, 2), pair)),
        d,
        ones,
      );
      u = v128.load(codes, 32);
      v = v128.load(codes, 160);
      bits = v128.load(twos, 32);
      w = v128.load(codes, 48);
      z = v128.load(codes, 176);
      others = v128.load(twos, 48);
      a = dotTwo<T>(
        v128.load32_splat(y, 8),
        v128.or(v128.and(u, low), v128.and(i16x8.shl(bits, 4), pair)),
        v128.load32_splat(y, 12),
        v128.or(v128.and(w, low), v128.and(i16x8.shl(others, 4), pair)),
        a,
        ones,
      );
      b = dotTwo<T>(
        v128.load32_splat(y, 40),
        v128.or(v128.and(v, low), v128.and(i16x8.shl(bits, 2), pair)),
        v128.load32_splat(y, 44),
        v128.or(v128.and(z, low), v128.and(i16x8.shl(others, 2), pair)),
        b,
        ones,
      );
      c = dotTwo<T>(
        v128.load32_splat(y, 72),
        v128.or(high(u, low), v128.and(bits, pair)),
        v128.load32_splat(y, 76),
        v128.or(high(w, low), v128.and(others, pair)),
        c,
        ones,
      );
      d = dotTwo<T>(
        v128.load32_splat(y, 104),
        v128.or(high(v, low), v128.and(i16x8.shr_u(bits, 2), pair)),
        v128.load32_splat(y, 108),
        v128.or(high(z, low), v128.and(i16x8.shr_u(others, 2), pair)),
        d,
        ones,
      );
      // sub-block of quarter q, part p of this half: half * 8 + q * 2 + p, a byte of its row's word
      const shift = 24 - ((<i32>part) << 3);
      const first = v128.load(at + (half << 5), 8);
      const second = v128.load(at + (half << 5), 24);
      scaled = addScaled(a, i32x4.shl(first, shift), meta, scaled);
      scaled = addScaled(b, i32x4.shl(first, shift - 16), meta + META_BYTES, scaled);
      scaled = addScaled(c, i32x4.shl(second, shift), meta + 2 * META_BYTES, scaled);
      scaled = addScaled(d, i32x4.shl(second, shift - 16), meta + 3 * META_BYTES, scaled);
    }
    x += 128;
    meta += 4 * META_BYTES;
  }
  return fma(scales4(at, halfMask(), halfFactor()), scaled, sums);
}

/** `top` has the signed scales of four rows in the upper bytes of its lanes. */
function addScaled(a: v128, top: v128, meta: usize, scaled: v128): v128 {
  const scales = f32x4.mul(f32x4.convert_i32x4_s(i32x4.shr_s(top, 24)), v128.load32_splat(meta));
  return fma(f32x4.convert_i32x4_s(a), scales, scaled);
}
